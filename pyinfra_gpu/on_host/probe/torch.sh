# torch is never imported: its identity is text. Its files, and those of everything beside it, are
# compared with their lists of sizes.
compared="torch.damaged torch.foreign torch.other torch.need"
# The interpreter behind an environment, or behind whatever was declared: a shim, another environment.
behind='import os, sys; print(os.path.realpath(sys._base_executable))'
torch() {
	kind_of "$PG_VENV"
	if [ "$kind" = hidden ]; then
		unknown_all "no permission to look at $PG_VENV" torch.python torch.python_problem torch.base \
			torch.installing torch.version_line torch.distribution $compared
	elif [ ! -d "$PG_VENV" ] || is_empty "$PG_VENV"; then
		absent torch.python torch.python_problem torch.base
		put torch.installing 0
		listed torch.version_line torch.distribution $compared
	elif [ ! -r "$PG_VENV" ] || [ ! -x "$PG_VENV" ]; then
		unknown_all "no permission to read $PG_VENV" torch.python torch.python_problem torch.base \
			torch.installing torch.version_line torch.distribution $compared
	else
		if [ -e "$PG_VENV/.pyinfra-gpu-installing" ]; then put torch.installing 1
		else put torch.installing 0; fi
		site=
		venv_python
		installed
	fi
	declared
	tool_version torch.uv "$PG_UV"
	at=$PG_BUILD pid=
	text build.stamp "${at:+$PG_VENV/.pyinfra-gpu-build.json}"
	text build.wheel "${at:+$at/wheel.json}"
	text build.state "${at:+$at/state.json}"
	if [ "$at" ]; then read -r pid <"$at/pid"; fi
	if [ "$pid" ] && [ -d "/proc/$pid" ]; then put build.pid "$pid"; else absent build.pid; fi
}

# is_empty FOLDER: made for the owner, and not filled yet; what may not be read is not empty
is_empty() {
	[ -r "$1" ] && [ -x "$1" ] || return 1
	for each in "$1"/* "$1"/.[!.]*; do
		if [ -e "$each" ] || [ -h "$each" ]; then return 1; fi
	done
}

check='
import os, sys, time
def say(key, value):
    raw = os.fsencode(value)
    plain = value == value.strip() and all(32 <= byte < 127 for byte in raw)
    print("torch.%s %s" % (key, "=" + value if plain else "x" + raw.hex()))
def check(site, end):
    os.chdir(site)
    infos = sorted(n for n in os.listdir() if n.endswith(".dist-info") and "-" in n)
    records = [n for n in infos if n.lower().startswith("torch-")]
    bad = []
    if not records and os.path.isdir("torch"):
        bad.append("torch-*.dist-info/RECORD")
    for info in records:
        differs(info, bad, 5, end)
    for path in bad[:5]:
        say("damaged", path)
    print("torch.damaged .")
    for path in () if bad else beside():
        say("foreign", path)
    print("torch.foreign .")
    others = [n for n in infos if n not in records and n[0] != "~" and " " not in n]
    lost = 0
    for info in others[:5000]:
        bad = []
        differs(info, bad, 1, end)
        if bad and lost < 100:
            lost += 1
            say("other", info.partition("-")[0] + " " + bad[0])
    print("torch.other .")
    for name in sorted(needed(infos) if lost else ()):
        say("need", name)
    print("torch.need .")
libraries = set()
def beside():
    found = []
    for folder in "torch", "torch/lib":
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = folder + "/" + name
            ours = os.fsencode(path) in libraries or name.endswith(".before-pyinfra-gpu")
            if ".so" in name and not ours and not os.path.isdir(path):
                found.append(path)
    return found[:5]
def differs(info, bad, most, end):
    record = info + "/RECORD"
    try:
        if not compare(record, bad, most, end):
            bad.append(record)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        bad.append(record)
def plain(name):
    return name.replace("_", "-").replace(".", "-").lower()
def needed(infos):
    folders = {plain(info.partition("-")[0]): info for info in infos}
    wanted, found = ["torch"], set()
    while wanted:
        name = wanted.pop()
        if name in folders and name not in found:
            found.add(name)
            wanted.extend(asked(folders[name] + "/METADATA"))
    return found
def asked(metadata):
    try:
        with open(metadata, "rb") as rows:
            head = rows.read(262144).partition(b"\n\n")[0].decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = []
    for row in head.splitlines():
        key, _, what = row.partition(": ")
        if key == "Requires-Dist" and "extra ==" not in what:
            end = next((i for i, c in enumerate(what) if not (c.isalnum() or c in "-_.")), None)
            names.append(plain(what[:end]))
    return names
def compare(record, bad, most, end):
    whole = False
    with open(record, "rb") as rows:
        for number, row in enumerate(iter(lambda: rows.readline(65536), b"")):
            if len(row) == 65536:
                raise ValueError
            parts = row.rstrip().rsplit(b",", 2)
            whole = whole or parts[0] == os.fsencode(record)
            if parts[0][:6] == b"torch/" and b".so" in parts[0]:
                libraries.add(parts[0])
            if len(parts) < 3 or not parts[2]:
                continue
            path = parts[0]
            if path[:1] == b"\"":
                path = path[1:-1].replace(b"\"\"", b"\"")
            try:
                same = os.stat(path).st_size == int(parts[2])
            except (FileNotFoundError, NotADirectoryError):
                same = False
            if not same:
                bad.append(os.fsdecode(path))
                if len(bad) >= most:
                    return True
            if not number % 1024 and time.monotonic() > end:
                raise OSError("its files could not be compared in 5 s")
    return whole
say("python", sys.version.split()[0])
say("base", os.path.realpath(sys._base_executable))
site = "%s/lib/python%d.%d%s/site-packages" % (
    sys.argv[1], sys.version_info[0], sys.version_info[1], "t" if "t" in sys.abiflags else "")
say("site", site)
if os.path.isdir(site):
    try:
        check(site, time.monotonic() + 5)
    except OSError as error:
        for key in "damaged", "foreign", "other", "need":
            print("torch.%s !" % key + os.fsencode(str(error)).hex())
else:
    print("torch.damaged .\ntorch.foreign .\ntorch.other .\ntorch.need .")
'

# A user can change what it prints, so only whole, plain lines of the expected keys pass.
venv_python() {
	python=$PG_VENV/bin/python
	if [ -h "$python" ] && [ ! -e "$python" ]; then
		no_python "$python is a link to $(readlink "$python"), which is not there"
		return
	elif [ ! -e "$python" ]; then no_python "$python is not there"; return
	fi
	said=$(bounded 15 "$python" -I -S -B -c "$check" "$PG_VENV" 2>&1)
	status=$?
	if [ $status != 0 ]; then
		why $status "${said#torch.*"$nl"}"
		no_python "$reason"
		return
	fi
	absent torch.python_problem
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		*[!\ -~]*) ;;
		torch.site\ =*) site=${row#torch.site =} ;;
		torch.python\ [=x]* | torch.base\ [=x]*) printf '%s\n' "$row" ;;
		torch.damaged\ [.=!x]* | torch.foreign\ [.=!x]* | torch.other\ [.=!x]* | torch.need\ [.=!x]*)
			printf '%s\n' "$row" ;;
		esac
	done
	set +f
	IFS=$ifs
}

# What the declared interpreter is, where data names it by a path.
declared() {
	if [ ! "$PG_PYTHON" ] || [ ! -e "$PG_PYTHON" ]; then absent torch.declared
	elif said=$(bounded 5 "$PG_PYTHON" -I -S -c "$behind" 2>&1); then put torch.declared "$said"
	else
		why $? "$said"
		unknown torch.declared "$PG_PYTHON: $reason"
	fi
}

no_python() {
	unknown torch.base "$1"
	unknown torch.python "$1"
	put torch.python_problem "$1"
	unknown_all "the environment's python does not run, so its files were not compared" $compared
}

# The names of the folders of installed distributions, and the lines of torch's own version file.
installed() {
	case $site in "$PG_VENV"/lib/*) ;; *) site= ;; esac
	if [ ! "$site" ]; then
		for site in "$PG_VENV"/lib/python3*/site-packages; do :; done
	fi
	if [ -d "$site" ] && { [ ! -r "$site" ] || [ ! -x "$site" ]; }; then
		unknown_all "no permission to read $site" torch.distribution torch.version_line
		return
	fi
	n=0
	for info in "$site"/*.dist-info; do
		n=$((n + 1))
		if [ $n -gt 5000 ]; then unknown torch.distribution "$site holds more than 5000"; break; fi
		if [ -d "$info" ]; then put torch.distribution "${info##*/}"; fi
	done
	listed torch.distribution
	file=$site/torch/version.py
	kind_of "$file"
	if [ "$kind" = hidden ] || { [ -f "$file" ] && [ ! -r "$file" ]; }; then
		unknown torch.version_line "no permission to read $file"
		return
	elif [ -f "$file" ]; then
		if have head; then head -c 65536 <"$file" | version_lines; else version_lines <"$file"; fi
	fi
	listed torch.version_line
}

version_lines() {
	n=0
	while [ $n -lt 100 ] && { IFS= read -r row || [ "$row" ]; }; do
		n=$((n + 1))
		case $row in
		__version__* | cuda* | git_version*) put torch.version_line "$row" ;;
		esac
	done
}

# tool_version KEY PROGRAM
tool_version() {
	kind_of "$2"
	if [ "$kind" = hidden ]; then unknown "$1" "no permission to look at $2"
	elif [ ! -f "$2" ]; then absent "$1"
	elif said=$(bounded 5 "$2" --version 2>&1); then put "$1" "${said%%"$nl"*}"
	else
		why $? "$said"
		unknown "$1" "$2: $reason"
	fi
}

