"""The public Python API, used by scripts, notebooks and every command.

``import fsframework as fsf`` exports what scripts need; packages of commands import the rest from
the modules of this package, each of which is public. Importing the package imports none of them.
"""
