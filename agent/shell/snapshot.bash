# Reads a file of the user's for interactive shells on standard input, and writes
# what it has set to the file $1, for prelude.bash: functions, aliases, options and
# PATH. Functions of the names below are left out: they would be in the way of
# commands that expect the programs.
__sb_before=$(set +o; shopt -p)
__sb_out=$1
shift
. /dev/stdin >/dev/null 2>&1
\builtin unalias builtin 2>/dev/null
\builtin set +euvx +o posix
\builtin umask 077
{
	while \builtin read -r _ _ __sb_name; do
		case $__sb_name in
		_* | awk | basename | bash | cat | chmod | chown | command | cp | curl | cut | date | diff | dirname | docker | \
			du | echo | env | find | git | go | grep | head | kill | less | ln | ls | make | mkdir | mv | node | npm | \
			perl | printf | ps | pwd | python | python3 | rg | rm | rmdir | sed | sh | sleep | sort | sudo | tail | \
			tar | tee | test | touch | tr | uniq | wc | which | xargs) ;;
		*) \builtin declare -f "$__sb_name" ;;
		esac
	done < <(\builtin declare -F)
	\builtin printf 'export PATH=%q\n' "$PATH"
	\builtin alias -p
	\builtin printf '__sb_o='
	while IFS= \builtin read -r __sb_name; do
		case $'\n'$__sb_before$'\n' in
		*$'\n'"$__sb_name"$'\n'*) ;;
		*) \builtin printf '%q' "$__sb_name"$'\n' ;;
		esac
	done < <(\builtin set +o; \builtin shopt -p)
	if [[ $(\builtin alias -p) ]]; then
		\builtin printf '%q' $'shopt -s expand_aliases\n'
	fi
	\builtin printf '\n'
} >|"$__sb_out"
