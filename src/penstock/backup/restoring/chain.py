"""A backup and those that it adds to, oldest first, each with its bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.backup.archive.archive import Archive
from penstock.backup.archive.folder_archive import FolderArchive
from penstock.backup.archive.tar_archive import TarArchive
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import BaseBackup, Manifest, decode_manifest
from penstock.history.read_files import ReadFiles

# A full backup with an incremental one each hour for a year.
LINKS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Link:
    manifest: Manifest
    archive: Archive


class Chain:
    def __init__(self, links: Sequence[Link]) -> None:
        """`links` are oldest first; each but the first adds to the one before."""
        self.links = list(links)
        self._archives = {link.manifest.id: link.archive for link in links}

    @property
    def newest(self) -> Manifest:
        return self.links[-1].manifest

    def archive(self, backup_id: str) -> Archive:
        """Return who has the bytes of a file; raises BackupError."""
        found = self._archives.get(backup_id)
        if found is None:
            raise BackupError(f"the manifest refers to backup {backup_id}, which is none of those that it adds to")
        return found

    def close(self) -> None:
        for link in self.links:
            link.archive.close()


def open_archive(where: str) -> Archive:
    """Open a folder or a tar file; raises BackupError."""
    if not os.path.exists(where):
        raise BackupError(f"there is no backup {where}")
    return FolderArchive(ReadFiles(where), where) if os.path.isdir(where) else TarArchive(where)


def open_chain(where: str, other_places: Sequence[str] = ()) -> Chain:
    """Open a backup with all that it adds to.

    Each is looked for where it was when the backup was made, then in `other_places`. Raises BackupError.
    """
    links: list[Link] = []
    try:
        archive = open_archive(where)
        manifest = _add(links, archive)
        while manifest.base is not None:
            if len(links) >= LINKS_MAX:
                raise BackupError(f"{where} adds to more than {LINKS_MAX} others: make a full backup")
            archive = _find_base(links[-1], manifest.base, other_places)
            manifest = _add(links, archive)
    except BaseException:
        for link in links:
            link.archive.close()
        raise
    links.reverse()
    return Chain(links)


def _add(links: list[Link], archive: Archive) -> Manifest:
    try:
        manifest = decode_manifest(archive.manifest_bytes(), archive.where)
    except BaseException:
        archive.close()
        raise
    links.append(Link(manifest, archive))
    return manifest


def _find_base(link: Link, base: BaseBackup, other_places: Sequence[str]) -> Archive:
    beside = os.path.join(os.path.dirname(os.path.abspath(link.archive.where)), base.path)
    tried: list[str] = []
    for place in [os.path.normpath(beside), *other_places]:
        try:
            archive = open_archive(place)
        except BackupError:
            tried.append(place)
            continue
        try:
            found = decode_manifest(archive.manifest_bytes(), place)
        except BackupError:
            archive.close()
            tried.append(place)
            continue
        if found.id == base.id and found.digest() == base.manifest_sha256:
            return archive
        archive.close()
        tried.append(place)
    raise BackupError(
        f"{link.archive.where} adds to backup {base.id}, which is not at {', '.join(tried)}: say where it is with"
        " --base"
    )
