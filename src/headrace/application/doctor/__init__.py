"""Diagnose an application from its log and views: what is wrong, and what it waits for.

Each problem is a module with its evidence and its remedy, and `checkup` looks for all of them. They
read only the newest rows of a topic.
"""

from headrace.application.doctor.checkup import Checkup, StepCheckup, examine
from headrace.application.doctor.finding import Finding
from headrace.application.doctor.waiting import Wait

__all__ = ["Checkup", "Finding", "StepCheckup", "Wait", "examine"]
