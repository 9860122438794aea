"""Checks of searchers, for `fsf plugins check` and for the tests of packages that have one."""
