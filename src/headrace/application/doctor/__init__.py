"""What is wrong with an application, and why it has no output yet: read off the log and its views.

A complaint is a module: what it is known by, the numbers that show it, and what helps. `checkup`
asks all of them. Whatever they read of a topic is bounded: its newest rows.
"""

from headrace.application.doctor.checkup import Checkup, StepCheckup, examine
from headrace.application.doctor.finding import Finding
from headrace.application.doctor.waiting import Wait

__all__ = ["Checkup", "Finding", "StepCheckup", "Wait", "examine"]
