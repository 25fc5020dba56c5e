"""What monitors use of the compiled core."""

from pianissimo import _core

ChargeBook = _core.ChargeBook
RaceTable = _core.RaceTable
group_names = _core.group_names
