# Read by bash before a command of contract agent, as BASH_ENV: what earlier
# commands have exported is there again, and what this one exports will be kept.
# SANDBOXBASH_SHELL is words: a file of the user's own settings; the file to read
# and its mark; the file to write and its mark; a - stands for what there is not;
# and then the variables that are this call's alone. What bash calls here may be a
# function of the user's by then, so that it is called builtin.
__sb=($SANDBOXBASH_SHELL)
__sb_t="{ \\builtin set +euxvf +o posix; . ${BASH_SOURCE[0]%/*}/save.bash ${__sb[*]:3:2}"
__sb_n="${__sb[*]:5}" __sb_i= __sb_k= __sb_o= __sb_v=()
unset -v BASH_ENV SANDBOXBASH_SHELL
if [[ ${__sb[0]} != - ]]; then
	. "${__sb[0]}"
fi 2>/dev/null
if [[ ${__sb[1]} != - ]]; then
	for ((__sb_i = 5; __sb_i < ${#__sb[@]}; __sb_i++)); do
		__sb_v[__sb_i]=${!__sb[__sb_i]}
		\builtin unset -v "${__sb[__sb_i]}"
	done
	\builtin . "${__sb[1]}" "${__sb[2]}"
	for __sb_i in "${!__sb_v[@]}"; do
		if [[ -v ${__sb[__sb_i]} ]]; then
			__sb_k+="declare -x ${__sb[__sb_i]}=${!__sb[__sb_i]@Q}"$'\n'
		fi
		\builtin export "${__sb[__sb_i]}=${__sb_v[__sb_i]}"
	done
fi >/dev/null 2>&1
if [[ ${__sb[3]} != - ]]; then
	\builtin trap -- "$__sb_t ${__sb_k@Q} $__sb_n; } >/dev/null 2>&1" EXIT
fi
\builtin eval "$__sb_o"'
\builtin unset -v __sb __sb_i __sb_k __sb_n __sb_o __sb_t __sb_v
\builtin : "$BASH"'
