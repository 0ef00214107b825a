"""Each number format's product, as torch itself judges shapes, types and scales without a GPU.

    python formats_on_meta.py SMOKE_TEST.pyz

On the meta device torch runs an operation's checks and none of its arithmetic.
"""

import sys

import torch

sys.path.insert(0, sys.argv[1])
from smoke import precision as formats

for name in formats.FORMATS:
    generator = torch.Generator().manual_seed(1)
    try:
        left = formats._MAKERS[name](generator, 384, 512)
        right = formats._MAKERS[name](generator, 256, 512)
        product = formats._operation(torch.device("meta"), name, left, right)()
        print(f"{name:6} {tuple(product.shape)} {product.dtype}")
    except Exception as error:
        print(f"{name:6} {type(error).__name__}: {error}".splitlines()[0])
