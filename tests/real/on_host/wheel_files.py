"""Print the largest file of each installed wheel: "NAME<tab>PATH<tab>DIGEST", as its list has it.

python wheel_files.py SITE-PACKAGES
"""

import csv
import pathlib
import sys

site = pathlib.Path(sys.argv[1])
for record in sorted(site.glob("*.dist-info/RECORD")):
    with record.open(newline="") as text:
        rows = [row for row in csv.reader(text) if row[2] and ".dist-info/" not in row[0]]
    if rows:
        path, digest, _ = max(rows, key=lambda row: int(row[2]))
        name = record.parent.name.partition("-")[0].replace("_", "-").lower()
        print(name, path, digest.removeprefix("sha256="), sep="\t")
