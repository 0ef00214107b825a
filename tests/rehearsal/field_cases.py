"""What a host looks like after a year of users, as their reports tell it: one shell command each.

Thought up beside `drifts`, whose table is what the product was written for; these were found by
asking what else people do to a machine, and what a power cut leaves.
"""

from __future__ import annotations

from functools import partial

from drifts import LIB, PREFIX, Drift

VENV, TREE = f"{PREFIX}/venv", f"{PREFIX}/training/training"
SITE = f"{VENV}/lib/python3.11/site-packages"
ENV_FILE = f"{PREFIX}/env/training.env"
CUDA = "/usr/local/cuda-13.0"
FIRST = "$(git ls-files | grep py$ | head -1)"
Case = partial(Drift, effect="")

OF_THE_DRIVER: dict[str, Drift] = {
    "the module's source is gone": Case(
        inject="rm -r /usr/src/nvidia-${V%-*}",
        ids=("driver.files-damaged",),
        holds="test -e /usr/src/nvidia-${V%-*}/dkms.conf",
    ),
    "DKMS was cut off while it built, as the package was set up": Case(
        inject=r"""
            rm -r /var/lib/dkms/nvidia/${V%-*}/$K/x86_64/module
            half='s/ok installed$/ok half-configured/'
            sed -i "/^Package: nvidia-kernel-open-dkms\$/,/^\$/$half" /var/lib/dpkg/status
        """,
        ids=("driver.files-damaged",),
        holds="dkms status | grep -q nvidia/${V%-*}.*installed",
    ),
    "the headers' build link dangles": Case(
        inject="ln -sfn /nowhere /lib/modules/$K/build",
        ids=("driver.headers-missing",),
        holds="test -e /lib/modules/$K/build/Makefile",
    ),
    "the same module lies in extra, too": Case(
        inject="""
            mkdir -p /lib/modules/$K/extra
            cp /lib/modules/$K/updates/dkms/nvidia.ko /lib/modules/$K/extra/
            depmod $K
        """
    ),
    "a drop-in keeps persistenced from starting": Case(
        inject="""
            at=/etc/systemd/system/nvidia-persistenced.service.d
            mkdir -p $at
            printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' > $at/x.conf
            systemctl daemon-reload
            systemctl restart nvidia-persistenced || true
        """,
        ids=("driver.persistenced-differs",),
        refused=True,
        undo="""
            rm -r /etc/systemd/system/nvidia-persistenced.service.d
            systemctl daemon-reload
            systemctl reset-failed nvidia-persistenced
        """,
    ),
    "nvidia-smi is gone, and apt's proxy is dead": Case(
        inject="""
            rm /usr/bin/nvidia-smi
            echo 'Acquire::http::Proxy "http://127.0.0.1:9";' > /etc/apt/apt.conf.d/99proxy
        """,
        ids=("driver.files-damaged",),
        refused=True,
        undo="rm /etc/apt/apt.conf.d/99proxy",
    ),
    "somebody diverted libcuda": Case(
        inject=f"""
            dpkg-divert --local --rename --divert {LIB}/libcuda.so.1.mine --add {LIB}/libcuda.so.1
            ldconfig
        """,
        ids=("libcuda.unproven",),
        undo=f"""
            rm {LIB}/libcuda.so.1
            dpkg-divert --local --rename --remove {LIB}/libcuda.so.1
            ldconfig
        """,
    ),
    "a link to libcuda lies in /usr/local/lib": Case(
        inject=f"ln -s {LIB}/libcuda.so.1 /usr/local/lib/libcuda.so.1; ldconfig",
        ids=("libcuda.unproven",),
        undo="rm -f /usr/local/lib/libcuda.so.1; ldconfig",
    ),
    "root alone may open the devices": Case(
        inject="chmod 600 /dev/nvidia[0-9]* /dev/nvidiactl",
        ids=("driver.closed",),
        refused=True,
        undo="chmod 666 /dev/nvidia[0-9]* /dev/nvidiactl",
    ),
    "root alone may run nvidia-smi": Case(
        inject="chmod 700 /usr/bin/nvidia-smi",
        ids=("driver.closed",),
        undo="chmod 755 /usr/bin/nvidia-smi",
    ),
    "libcuda is a link to a copy of somebody's": Case(
        inject=f"f={LIB}/libcuda.so.${{V%-*}}; mv $f /opt/mine.so; ln -s /opt/mine.so $f",
        ids=("driver.files-damaged", "libcuda.link-differs", "libcuda.unproven"),
        holds=f"test ! -L {LIB}/libcuda.so.${{V%-*}} && test -s {LIB}/libcuda.so.${{V%-*}}",
    ),
}

OF_APT: dict[str, Drift] = {
    "a pin of the user's prefers another driver": Case(
        inject="""
            printf 'Package: *nvidia* libcuda1\\nPin: version 580.105.08*\\n' > /tmp/pin
            echo 'Pin-Priority: 1001' | cat /tmp/pin - > /etc/apt/preferences.d/99-mine
        """
    ),
    "apt's lists are emptied": Case(inject="rm -rf /var/lib/apt/lists/*"),
    "apt's proxy is dead": Case(
        inject="echo 'Acquire::http::Proxy \"http://127.0.0.1:9\";' > /etc/apt/apt.conf.d/99proxy",
        undo="rm /etc/apt/apt.conf.d/99proxy",
    ),
    "somebody's package cannot be configured": Case(
        inject="""
            at=/tmp/labthing; mkdir -p $at/DEBIAN
            printf 'Package: labthing\\nVersion: 1\\nArchitecture: all\\n' > $at/DEBIAN/control
            printf 'Maintainer: x <x@x.x>\\nDescription: x\\n' >> $at/DEBIAN/control
            printf '#!/bin/sh\\nexit 1\\n' > $at/DEBIAN/postinst; chmod 755 $at/DEBIAN/postinst
            quiet dpkg-deb -b $at /tmp/labthing.deb
            dpkg -i /tmp/labthing.deb >/dev/null 2>&1 || true
        """,
        ids=("packages.unfinished",),
        undo="quiet dpkg --purge --force-all labthing",
    ),
}

_ANEW = ("pytorch.environment-differs", "pytorch.version-differs")
_IMPORTS = f"owner 'cd / && {VENV}/bin/python -c \"import torch\"'"

OF_PYTHON: dict[str, Drift] = {
    "sudo pip made a package root's": Case(
        inject=f"chown -R root:root {SITE}/numpy; chmod -R go-rwx {SITE}/numpy",
        ids=_ANEW,
        holds=_IMPORTS,
    ),
    "a .pth file puts another torch first": Case(
        inject=f"""
            mkdir -p /tmp/other/torch; echo x=1 > /tmp/other/torch/__init__.py
            echo 'import sys; sys.path.insert(0, "/tmp/other")' > {SITE}/aaa.pth
            chown -R ubuntu /tmp/other {SITE}/aaa.pth
        """,
        ids=("pytorch.import-elsewhere",),
        undo=f"rm -f {SITE}/aaa.pth; rm -rf /tmp/other",
    ),
    "a sitecustomize of the user's changes nothing of torch": Case(
        inject=f"owner 'echo x=1 > {SITE}/sitecustomize.py'"
    ),
    "the system's python3 leads to nothing": Case(
        inject="ln -sfn /nowhere /usr/bin/python3",
        ids=(),  # nothing there can look: the host is undetermined
        refused=True,
        undo="ln -sfn python3.11 /usr/bin/python3",
    ),
    "an interrupted removal left metadata of numpy": Case(
        inject=f"""
            mkdir {SITE}/numpy-1.26.4.dist-info
            echo 'Version: 1.26.4' > {SITE}/numpy-1.26.4.dist-info/METADATA
            chown -R ubuntu {SITE}/numpy-1.26.4.dist-info
        """,
        ids=("pytorch.files-damaged", "training.requirements-differ"),
        holds=f"test $(ls -d {SITE}/numpy-*.dist-info | wc -l) = 1",
    ),
    "a library of torch is a link to another of its size": Case(
        inject=f"""
            cd {SITE}/torch/lib
            cp libc10.so /opt/mine.so
            printf x | dd of=/opt/mine.so seek=9 bs=1 conv=notrunc status=none
            mv libc10.so /opt/before.so; ln -s /opt/mine.so libc10.so
        """,
        ids=("pytorch.files-damaged",),
        holds=f"test ! -L {SITE}/torch/lib/libc10.so && {_IMPORTS}",
    ),
    "pip's and uv's settings name another index": Case(
        inject=f"""
            rm -r {SITE}/sympy {SITE}/sympy-*.dist-info
            cd /home/ubuntu; mkdir -p .config/uv .config/pip
            echo 'index-url = "https://mirror.invalid/simple"' > .config/uv/uv.toml
            printf '[global]\\nindex-url = https://mirror.invalid/\\n' > .config/pip/pip.conf
            chown -R ubuntu .config
        """,
        ids=("training.requirements-differ",),
        holds=_IMPORTS,
    ),
}

OF_GIT: dict[str, Drift] = {
    "torch.py beside train.py": Case(
        inject=f"owner 'echo x=1 > {TREE}/torch.py'",
        ids=("training.local-changes",),
        undo=f"rm {TREE}/torch.py",
    ),
    "git was killed and left its lock": Case(
        inject=f"owner 'touch {TREE}/.git/index.lock'", undo=f"rm {TREE}/.git/index.lock"
    ),
    "git's settings of the owner cannot be read": Case(
        inject="echo '[broken' > /home/ubuntu/.gitconfig; chown ubuntu /home/ubuntu/.gitconfig"
    ),
    "git rewrites the address": Case(
        inject="""
            printf '[url "https://mirror.invalid/"]\\n\\tinsteadOf = http://\\n' \\
              > /home/ubuntu/.gitconfig
            chown ubuntu /home/ubuntu/.gitconfig
        """
    ),
    "the mode of a file changed": Case(
        inject=f"owner 'cd {TREE}; chmod 755 {FIRST}'",
        ids=("training.local-changes",),
        undo=f"owner 'cd {TREE}; git checkout -q .'",
    ),
}

OF_THE_HOST: dict[str, Drift] = {
    "a file of ours cannot be changed": Case(
        inject=f"mount --bind {ENV_FILE} {ENV_FILE}; mount -o remount,bind,ro {ENV_FILE}",
        undo=f"umount {ENV_FILE}",
    ),
    "every login gets one GPU and another Python path": Case(
        inject="printf 'CUDA_VISIBLE_DEVICES=0\nPYTHONPATH=/opt/lab\n' >> /etc/environment",
        ids=("environment.set-for-all",),
        undo="sed -i '/CUDA_VISIBLE_DEVICES/d; /PYTHONPATH/d' /etc/environment",
    ),
    "shared memory is what a container gets": Case(
        inject="mount -o remount,size=64M /dev/shm",
        ids=("preflight.shared-memory-unfit",),
        refused=True,
        undo="mount -o remount,size=50% /dev/shm",
    ),
    "shared memory is mounted noexec, as hardening has it": Case(
        inject="mount -o remount,noexec /dev/shm",
        undo="mount -o remount,exec /dev/shm",
    ),
    "somebody stopped the owner's user manager, and a login starts it again": Case(
        inject="systemctl stop user@$(id -u ubuntu).service",
        holds="test -d /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service",
    ),
    "the owner's umask is 077": Case(
        inject="echo 'umask 077' | tee -a /home/ubuntu/.profile >> /home/ubuntu/.bashrc"
    ),
    "the name server is gone": Case(inject=": > /etc/resolv.conf"),
    "the base of the environment moved": Case(
        inject=f"sed -i 's|^home = .*|home = /nowhere/bin|' {VENV}/pyvenv.cfg"
    ),
}

CASES: dict[str, Drift] = {
    **OF_THE_DRIVER,
    **OF_APT,
    **OF_PYTHON,
    **OF_GIT,
    **OF_THE_HOST,
}
