"""The letter's figures as studies: runs, tables, figures and verdicts."""

from fedstein.studies.claims import Claim, Part, interval
from fedstein.studies.reproducing import STUDIES, Reproduced, StudyJobs, reproduce, study_jobs
from fedstein.studies.study import Findings, Study, draw, save

__all__ = [
    "STUDIES",
    "Claim",
    "Findings",
    "Part",
    "Reproduced",
    "Study",
    "StudyJobs",
    "draw",
    "interval",
    "reproduce",
    "save",
    "study_jobs",
]
