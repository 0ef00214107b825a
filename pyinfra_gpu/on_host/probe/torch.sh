# torch is never imported: its identity is text. Its files, and those of everything beside it, are
# compared with their lists of sizes.
compared="torch.damaged torch.foreign torch.other torch.need torch.touched torch.elsewhere"
of_torch="torch.python torch.python_problem torch.base torch.installing torch.version_line \
torch.distribution $compared"
# The interpreter behind an environment, or behind whatever was declared: a shim, another environment.
behind='import os, sys; print(os.path.realpath(sys._base_executable))'
torch() {
	site='' versions='' base='' glibc=''
	kind_of "$PG_VENV"
	if [ "$kind" = hidden ]; then
		unknowns "no permission to look at $PG_VENV" $of_torch
	elif [ ! -d "$PG_VENV" ] || is_empty "$PG_VENV"; then
		absent torch.python torch.python_problem torch.base torch.elsewhere
		put torch.installing 0
		put torch.touched 0
		listed torch.version_line torch.distribution torch.damaged torch.foreign torch.other torch.need
	elif [ ! -r "$PG_VENV" ] || [ ! -x "$PG_VENV" ]; then
		unknowns "no permission to read $PG_VENV" $of_torch
	else
		if [ -e "$PG_VENV/.pyinfra-gpu-installing" ]; then put torch.installing 1
		else put torch.installing 0; fi
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
	cudnn
}

# The cuDNN that a build takes, by the first of its headers that there is.
cudnn() {
	IFS=$nl
	for folder in $PG_CUDNN; do
		IFS=$ifs header=$R$folder/cudnn_version.h
		[ -f "$header" ] || continue
		has grep build.cudnn || return
		bounded ended 5 grep -hsE -m3 '^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ' "$header"
		release=
		while read -r row; do release=$release${row:+.${row##* }}; done <<-said
			$said
		said
		put build.cudnn "${release#.}"
		return
	done
	IFS=$ifs
	absent build.cudnn
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
gone = FileNotFoundError, NotADirectoryError
def check():
    infos = []
    if not os.path.isdir(site):
        print("torch.elsewhere -")
    else:
        os.chdir(site)
        elsewhere()
        infos = sorted(n for n in os.listdir() if n.endswith(".dist-info") and "-" in n)
    own = [n for n in infos if n.lower().startswith("torch-")]
    bad = []
    if not own and os.path.isdir(site + "/torch"):
        bad.append("torch-*.dist-info/RECORD")
    rest = [n for n in infos if n not in own and n[0] != "~" and " " not in n]
    for info in own:
        compare(info + "/RECORD", bad, 5)
    others = {info: [] for info in rest[:5000]}
    for info in others:
        compare(info + "/RECORD", others[info], 1)
    if later:
        digests()
    for path in bad[:5]:
        say("damaged", path)
    print("torch.damaged .")
    for path in () if bad else beside():
        say("foreign", path)
    print("torch.foreign .")
    lost = 0
    for info, bad in others.items():
        if bad and lost < 100:
            lost += 1
            say("other", info.partition("-")[0] + " " + bad[0])
    print("torch.other .")
    for name in sorted(needed(infos) if lost else ()):
        say("need", name)
    print("torch.need .")
def version():
    try:
        with open(site + "/torch/version.py", "rb") as file:
            rows = file.read(65536).split(b"\n")
    except OSError:
        return
    for row in rows[:100]:
        if row.startswith((b"__version__", b"cuda", b"git_version")):
            say("version_line", os.fsdecode(row))
    print("torch.version_line .")
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
def elsewhere():
    theirs = [n for n in os.listdir() if n.endswith(".pth") or n[-12:] == "customize.py"]
    theirs = [n for n in theirs if not n.startswith("_virtualenv") and not brought(n)]
    if theirs:
        import subprocess
        ask = "import importlib.util as i; print(i.find_spec(\"torch\").origin)"
        words = [sys.executable, "-B", "-c", ask]
        said = subprocess.run(words, capture_output=True, text=True, cwd="/", env={}, timeout=5)
        found = said.stdout.strip().rpartition("\n")[2]
        if found and os.path.realpath(found) != os.path.realpath(site + "/torch/__init__.py"):
            return say("elsewhere", theirs[0] + " " + found)
    print("torch.elsewhere -")
def brought(name):
    row = os.fsencode("\n%s," % name)
    for info in os.listdir():
        if info.endswith(".dist-info") and os.path.exists(info + "/RECORD"):
            with open(info + "/RECORD", "rb") as rows:
                if row in b"\n" + rows.read(1 << 24):
                    return True
def plain(name):
    return name.replace("_", "-").replace(".", "-").lower()
def needed(infos):
    folders = {plain(info.partition("-")[0]): info for info in infos}
    wanted, found = [("torch", "")], {}
    while wanted:
        name, extras = wanted.pop()
        if name in folders and extras not in found.setdefault(name, []):
            found[name].append(extras)
            wanted.extend(asked(folders[name] + "/METADATA", extras))
    return {name for name in found if found[name]}
def asked(metadata, extras):
    from re import findall
    try:
        with open(metadata, "rb") as rows:
            head = rows.read(262144).partition(b"\n\n")[0].decode("utf-8", "replace")
    except gone:
        return
    extras = plain(extras).replace(",", " ").split()
    for name, more, rest in findall(r"(?m)^Requires-Dist: ([\w.-]+) ?(?:\[(.*?)\])?(.*)", head):
        only = findall(r"extra == .([\w.-]+)", rest)
        if not only or any(plain(extra) in extras for extra in only):
            yield plain(name), more
def compare(record, bad, most):
    whole, itself, stat = False, os.fsencode(record), os.lstat
    try:
        with open(record, "rb") as file:
            if os.fstat(file.fileno()).st_size > 1 << 25:
                raise ValueError
            while rows := file.readlines(1 << 17):
                if time.monotonic() > end:
                    raise OSError("its files could not be compared in time")
                if most == 5:
                    libraries.update(row.rsplit(b",", 2)[0] for row in rows if b".so" in row)
                for row in rows:
                    try:
                        path, digest, size = row.rsplit(b",", 2)
                        if path == itself:
                            whole = True
                        if size < b"0" and not size.strip():
                            continue
                        found = stat(path)
                        if found.st_size == int(size) and found.st_ctime <= proven and found.st_mode & 0o170004 == 0o100004:
                            continue
                    except (OSError, ValueError):
                        if row.count(b",") < 2:
                            continue
                    if path[:1] == b"\"":
                        path = path[1:-1].replace(b"\"\"", b"\"")
                    if not same(path, digest, size, bad):
                        bad.append(os.fsdecode(path))
                        if len(bad) >= most:
                            return
    except (*gone, ValueError):
        whole = False
    if not whole:
        bad.append(record)
def same(path, digest, size, bad):
    try:
        found = os.lstat(path)
        since = found.st_ctime
        if found.st_mode & 0o170000 == 0o120000:
            found = os.stat(path)
            since = max(since, found.st_ctime) if stamped else proven + 1
    except gone:
        return False
    except PermissionError:
        if os.stat(sys.argv[1]).st_uid != os.getuid():
            raise
        sys.exit("for its owner, who may not look at " + os.fsdecode(path))
    if not found.st_mode & 4 and not os.access(path, os.R_OK):
        return False
    if found.st_size != int(size) or since <= proven or digest[:7] != b"sha256=":
        return found.st_size == int(size)
    later.append((since, path, digest[7:], bad))
    return True
# What was touched last comes first: of many files that were installed again, none was changed since.
def digests():
    global touched
    import base64, hashlib
    later.sort(key=lambda each: each[:2], reverse=True)
    for number, (since, path, digest, bad) in enumerate(later):
        if time.monotonic() > end - 3:
            touched = len(later) - number
            return
        now = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while part := file.read(1 << 20):
                    now.update(part)
        except gone:
            pass
        if digest != base64.urlsafe_b64encode(now.digest()).rstrip(b"="):
            bad.append(os.fsdecode(path))
try:
    with open(sys.argv[1] + "/pyvenv.cfg") as file:
        settings = file.read(65536)
except gone:
    sys.exit("as that of the environment, whose pyvenv.cfg is gone")
with open(sys.argv[1] + "/bin/python", "rb") as file:
    if file.read(2) == b"#!":
        sys.exit("as that of the environment, being a script that starts another one")
if "include-system-site-packages=true" in settings.replace(" ", "").lower():
    sys.exit("apart from the packages of the system, which pyvenv.cfg lets in")
say("python", sys.version.split()[0])
say("base", os.path.realpath(sys._base_executable))
site = "%s/lib/python%d.%d%s/site-packages" % (
    sys.argv[1], sys.version_info[0], sys.version_info[1], "t" if "t" in sys.abiflags else "")
say("site", site)
if "CS_GNU_LIBC_VERSION" in os.confstr_names:
    say("glibc", os.confstr("CS_GNU_LIBC_VERSION") or "")
version()
end, touched, later = time.monotonic() + float(sys.argv[3]), 0, []
try:
    proven, stamped = os.stat(sys.argv[2]).st_mtime, True
except OSError:
    proven, stamped = end * 1e9, False
try:
    check()
except OSError as error:
    for key in "damaged", "foreign", "other", "need":
        print("torch.%s !" % key + os.fsencode(str(error)).hex())
say("touched", str(touched))
sys.stdout.flush()
os._exit(0)
'

# A user can change what it prints, so only whole, plain lines of the expected keys pass.
venv_python() {
	python=$PG_VENV/bin/python
	if [ -h "$python" ] && [ ! -e "$python" ]; then
		no_python "$python is a link to $(readlink "$python"), which is not there"
		return
	elif [ ! -e "$python" ]; then no_python "$python is not there"; return
	fi
	answer python 15 "$python" -I -S -B -c "$check" "$PG_VENV" "$PG_STAMP" "$PG_COMPARE"
	status=$?
	if [ $status != 0 ]; then
		why $status "${said#torch.*"$nl"}"
		no_python "$reason"
		return
	fi
	absent torch.python_problem
	rows=''
	IFS=$nl
	set -f
	for row in $said; do
		case $row in
		*[!\ -~]*) ;;
		torch.site\ =*) site=${row#torch.site =} ;;
		torch.glibc\ =*) glibc=${row#torch.glibc =} ;;
		torch.version_line\ [.=x]*)
			rows=$rows$row$nl
			if [ "$row" = "torch.version_line ." ]; then versions=$rows; fi
			;;
		torch.base\ [=x]*)
			base=${row#torch.base =}
			printf '%s\n' "$row"
			;;
		torch.python\ [=x]* | torch.touched\ =* | torch.elsewhere\ [-=x]*) printf '%s\n' "$row" ;;
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
	elif [ "$base" -ef "$PG_PYTHON" ]; then put torch.declared "$base"
	elif bounded ended 5 "$PG_PYTHON" -I -S -c "$behind"; then put torch.declared "$said"
	else
		why $? "$said"
		unknown torch.declared "$PG_PYTHON: $reason"
	fi
}

no_python() {
	unknown torch.base "$1"
	unknown torch.python "$1"
	put torch.python_problem "$1"
	unknowns "the environment's python does not run, so its files were not compared" $compared
}

# The names of the folders of installed distributions, and the lines of torch's own version file.
installed() {
	case $site in "$PG_VENV"/lib/*) ;; *) site= ;; esac
	if [ ! "$site" ]; then
		for site in "$PG_VENV"/lib/python3*/site-packages; do :; done
	fi
	if [ -d "$site" ] && { [ ! -r "$site" ] || [ ! -x "$site" ]; }; then
		unknowns "no permission to read $site" torch.distribution torch.version_line
		return
	fi
	n=0
	for info in "$site"/*.dist-info; do
		n=$((n + 1))
		if [ $n -gt 5000 ]; then unknown torch.distribution "$site holds more than 5000"; break; fi
		if [ -d "$info" ]; then put torch.distribution "${info##*/}"; fi
	done
	listed torch.distribution
	if [ "$versions" ]; then printf %s "$versions"; return; fi
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
	elif answer uv 5 "$2" --version; then put "$1" "${said%%"$nl"*}"
	else
		why $? "$said"
		unknown "$1" "$2: $reason"
	fi
}

