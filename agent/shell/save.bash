# Read by bash at the end of a command, by the trap that prelude.bash has set: the
# file to write and its mark, what is to be in it besides, and the variables that
# were the call's alone. What is exported and what functions there are is kept,
# but not what every call is given. Nobody sees what this shell looks like then.
\builtin trap - DEBUG ERR RETURN
\builtin umask 077
\builtin unset -v PWD OLDPWD SHLVL "${@:4}" \
	PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER BAT_PAGER DELTA_PAGER GH_PAGER GLAB_PAGER PSQL_PAGER MYSQL_PAGER \
	AWS_PAGER HOMEBREW_PAGER LESS TERM GPG_TTY NO_COLOR PYTHONUNBUFFERED GIT_EDITOR VISUAL EDITOR \
	GIT_TERMINAL_PROMPT SSH_ASKPASS CI npm_config_yes npm_config_update_notifier npm_config_fund npm_config_audit \
	npm_config_progress PNPM_DISABLE_SELF_UPDATE_CHECK PNPM_UPDATE_NOTIFIER YARN_ENABLE_TELEMETRY \
	YARN_ENABLE_PROGRESS_BARS CARGO_TERM_PROGRESS_WHEN DEBIAN_FRONTEND PIP_NO_INPUT PIP_DISABLE_PIP_VERSION_CHECK \
	TF_INPUT TF_IN_AUTOMATION GH_PROMPT_DISABLED COMPOSER_NO_INTERACTION CLOUDSDK_CORE_DISABLE_PROMPTS
{
	\builtin printf '[[ $1 == %s ]] || return 0\n%s' "$2" "$3" &&
		\builtin declare -px && \builtin declare -f && \builtin declare -Fx
} >|"$1" || : >|"$1"
