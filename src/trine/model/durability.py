"""How far a change must have come before it is answered."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """Each level promises what the one before does, and more.

    MEMORY   survives nothing; the broker has it in its memory
    WRITTEN  survives the end of the process, however sudden; the system has it
    SYNCED   survives a power cut; the medium has it
    """

    MEMORY = 0
    WRITTEN = 1
    SYNCED = 2
