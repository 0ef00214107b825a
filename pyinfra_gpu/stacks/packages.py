"""The part of stacks.yaml about NVIDIA's packages: repositories, and what to install from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.stacks.reader import Node

_PACKAGE = r"[a-z0-9][a-z0-9+.-]*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """NVIDIA's repository of one distribution release.

    + distro: its name in the URL, e.g. "ubuntu2404"
    + key_fingerprint: 40 upper-case hexadecimal digits of the one key that signs it
    + keyring_sha256: digest of its cuda-keyring package
    """

    distro: str
    key_fingerprint: str
    keyring_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Repositories:
    """All of NVIDIA's repositories; `arch` maps a machine to its name in the URL."""

    url: str
    arch: Mapping[str, str]
    releases: Mapping[str, Repository]


@dataclass(frozen=True, kw_only=True, slots=True)
class Flavour:
    """What to install for one flavour of kernel modules, as templates with `{branch}`."""

    compute: tuple[str, ...]
    full: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRule:
    """The packages of the branches from `oldest` to `newest`; None as `newest` = no end.

    A flavour is None where the branches no longer have it.
    """

    oldest: int
    newest: int | None
    open: Flavour | None
    proprietary: Flavour | None

    def covers(self, branch: int) -> bool:
        """Return whether the rule is the one of `branch`."""
        return self.oldest <= branch and (self.newest is None or branch <= self.newest)


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionPackages:
    """What one distribution calls a driver's packages."""

    headers: str
    pin_branch: str
    pin_version: str
    rules: tuple[PackageRule, ...]

    def driver(
        self,
        branch: int,
        modules: Literal["open", "proprietary"],
        packages: Literal["compute", "full"],
    ) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            flavour = rule.open if modules == "open" else rule.proprietary
            if rule.covers(branch) and flavour is not None:
                names = flavour.compute if packages == "compute" else flavour.full
                return tuple(name.replace("{branch}", str(branch)) for name in names)
        return None


def parse_repositories(node: Node) -> Repositories:
    """Return the repositories; raises StacksError with the place of what is malformed."""
    result = Repositories(
        url=node.matching(
            "url", r"https://\S*\{distro\}\S*\{arch\}\S*", "a URL with {distro} and {arch}"
        ),
        arch=node.table("arch", lambda _, child: child.text_here()),
        releases=node.table("releases", _repository),
    )
    node.done()
    return result


def _repository(_: str, node: Node) -> Repository:
    repository = Repository(
        distro=node.matching("distro", r"[a-z]+\d+", "a distribution and its digits"),
        key_fingerprint=node.matching(
            "key_fingerprint", r"[0-9A-F]{40}", "40 upper-case hexadecimal digits"
        ),
        keyring_sha256=node.matching(
            "keyring_sha256", r"[0-9a-f]{64}", "64 lower-case hexadecimal digits"
        ),
    )
    node.done()
    return repository


def parse_distribution(_: str, node: Node) -> DistributionPackages:
    """Return one distribution's packages; raises StacksError with the place of a mistake."""
    names = node.child("names")
    packages = DistributionPackages(
        headers=template(names, "headers", "kernel"),
        pin_branch=template(names, "pin_branch", "branch"),
        pin_version=template(names, "pin_version", "version"),
        rules=node.listed("rules", _rule),
    )
    names.done()
    node.done()
    return packages


def _rule(node: Node) -> PackageRule:
    oldest, newest = node.open_range("branches")
    rule = PackageRule(
        oldest=oldest,
        newest=newest,
        open=_flavour(node.optional_child("open")),
        proprietary=_flavour(node.optional_child("proprietary")),
    )
    node.done()
    return rule


def _flavour(node: Node | None) -> Flavour | None:
    if node is None:
        return None
    flavour = Flavour(compute=node.listed("compute", _name), full=node.listed("full", _name))
    node.done()
    return flavour


def _name(node: Node) -> str:
    pattern = rf"{_PACKAGE}(\{{branch\}}(-{_PACKAGE})?)?"
    return node.matching_here(pattern, "a package name, in which only {branch} is replaced")


def template(node: Node, key: str, placeholder: str) -> str:
    """Return the package name under `key`, which must end in `{placeholder}`."""
    pattern = rf"{_PACKAGE}{re.escape('{' + placeholder + '}')}"
    return node.matching(key, pattern, f"a package name that ends in {{{placeholder}}}")
