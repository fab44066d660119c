"""Compiles `paths.py`: what it declares is a function of C."""

cpdef bint is_admin_path(bytes path)
