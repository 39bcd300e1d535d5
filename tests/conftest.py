"""Being here puts `table.py` on the path of every test."""

from hypothesis import settings

settings.register_profile("without-clock", deadline=None)  # no test asserts a time
settings.load_profile("without-clock")
