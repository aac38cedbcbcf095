"""Trackers, one file each."""

from fedstein.trackers.base import TRACKERS, Tracker, TrackerMaker, Watcher, check_trackers, open_trackers

__all__ = ["TRACKERS", "Tracker", "TrackerMaker", "Watcher", "check_trackers", "open_trackers"]
