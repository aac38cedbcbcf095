"""The letter's figures as studies: runs, tables, figures and verdicts."""

from fedstein.studies.claims import Claim, Part, interval
from fedstein.studies.fig2 import FIG2
from fedstein.studies.fig3 import FIG3
from fedstein.studies.fig4 import FIG4
from fedstein.studies.study import Findings, Study, save

STUDIES: dict[str, Study] = {study.name: study for study in (FIG2, FIG3, FIG4)}

__all__ = ["STUDIES", "Claim", "Findings", "Part", "Study", "interval", "save"]
