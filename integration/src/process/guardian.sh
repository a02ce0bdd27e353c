# The guardian outlives the harness by a moment: it reads what the harness starts, one line each, and
# when the pipe closes, because the harness ended or was killed, it ends what is still running and
# removes the folders that nobody asked to keep.
#   start SIGNAL PID   a process group runs; SIGNAL asks it to end
#   end PID            it is gone
#   folder PATH        a temporary folder
#   forget PATH        it is gone, or is to be kept
trap '' INT TERM HUP
newline='
'
running=
folders=
while IFS= read -r line; do
  rest=${line#* }
  case $line in
    'start '*) running="$running ${rest% *}:${rest#* }" ;;
    'end '*)
      left=
      for one in $running; do
        [ "${one#*:}" = "$rest" ] || left="$left $one"
      done
      running=$left ;;
    'folder '*) folders="$folders$rest$newline" ;;
    'forget '*)
      left=
      while IFS= read -r one; do
        [ -z "$one" ] || [ "$one" = "$rest" ] || left="$left$one$newline"
      done <<LIST
$folders
LIST
      folders=$left ;;
  esac
done

for one in $running; do
  # A program at a person's terminal leads no group of its own.
  kill -s "${one%:*}" -- "-${one#*:}" 2>/dev/null || kill -s "${one%:*}" "${one#*:}" 2>/dev/null
done
tries=0
while [ $tries -lt 30 ]; do
  alive=
  for one in $running; do
    kill -s 0 -- "-${one#*:}" 2>/dev/null || kill -s 0 "${one#*:}" 2>/dev/null || continue
    alive=yes
  done
  [ -z "$alive" ] && break
  sleep 0.1
  tries=$((tries + 1))
done
for one in $running; do
  kill -s KILL -- "-${one#*:}" 2>/dev/null || kill -s KILL "${one#*:}" 2>/dev/null
done
while IFS= read -r one; do
  [ -z "$one" ] || rm -rf -- "$one"
done <<LIST
$folders
LIST
