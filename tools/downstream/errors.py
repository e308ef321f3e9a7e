"""The errors we raise: where, what, and what to do next."""

from __future__ import annotations


class DownstreamError(Exception):
    """Something could not be done. Ends a command with exit code 2.

    *place* is a file, release, URL or option; *problem* a sentence without its
    place; *next_step* what the reader can do about it (may be empty).
    """

    def __init__(self, place: str, problem: str, next_step: str = "") -> None:
        super().__init__(place, problem, next_step)
        self.place = place
        self.problem = problem
        self.next_step = next_step

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}" if self.place else self.problem
        return f"{text}\n  next: {self.next_step}" if self.next_step else text


class UsageError(DownstreamError):
    """The command line asks for something that has no single meaning."""


class PinError(DownstreamError):
    """VERSIONS.toml is malformed, or its pins do not satisfy each other."""


class PatchError(DownstreamError):
    """A patch, its header or its series file cannot be read as one."""


class UnsafePathError(PatchError):
    """A path that would leave the tree or reach into git's own folder."""


class TreeError(DownstreamError):
    """The files of a release cannot be read."""


class NetworkError(TreeError):
    """An index or file server did not answer as it should."""


class OfflineError(NetworkError):
    """--offline was asked for and the cache does not hold what is needed."""


class DigestError(TreeError):
    """Bytes whose sha256 is not the pinned one."""


class StateError(DownstreamError):
    """A rebase under way, or its remains, do not allow this step."""


class WriteError(DownstreamError):
    """A file could not be written; what was there before still is."""


class WheelError(DownstreamError):
    """A wheel breaks a rule of the wheel format, or one of ours."""


class PublishError(DownstreamError):
    """An index that does not take, or does not hold, what it is asked for."""


class GuardError(DownstreamError):
    """A ledger or an audit request that cannot be understood."""


class ToolchainError(DownstreamError):
    """The CUDA toolchain is missing, incomplete or of the wrong version."""
