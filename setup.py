"""Builds every .pyx below src/router as an extension of the same dotted name.

ROUTER_CHECKED=1 turns the bounds, None and initialised checks on: the build the
tests run against beside the release build.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CHECKED = os.environ.get("ROUTER_CHECKED", "") not in ("", "0")

# -fwrapv (from Python's own flags) keeps gcc from vectorising int-indexed loops;
# -ffp-contract=off keeps a decision the same on every machine.
FLAGS = ["-O2", "-g0", "-fno-wrapv", "-ffp-contract=off"]

#: A .py with a .pxd beside it is compiled, too: its source stays plain Python.
sources = [
    *Path("src").rglob("*.pyx"),
    *(path for path in Path("src").rglob("*.py") if path.with_suffix(".pxd").exists()),
]

extensions = [
    Extension(
        ".".join(path.relative_to("src").with_suffix("").parts),
        [str(path)],
        extra_compile_args=FLAGS,
    )
    for path in sorted(sources)
]

JOBS = os.cpu_count() or 1

setup(
    options={"build_ext": {"parallel": JOBS}},
    ext_modules=cythonize(
        extensions,
        # A changed directive alone would not be noticed, and the old binary stay.
        force=True,
        build_dir="build/cython",
        include_path=["src"],
        nthreads=JOBS,
        compiler_directives={
            "language_level": 3,
            "binding": True,
            "embedsignature": False,
            "auto_pickle": False,
            "autotestdict": False,
            "cdivision": True,
            "wraparound": False,
            "boundscheck": CHECKED,
            "initializedcheck": CHECKED,
            "nonecheck": CHECKED,
        },
    ),
)
