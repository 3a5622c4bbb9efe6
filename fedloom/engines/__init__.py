"""Engines run algorithms: iterators of records."""

from fedloom.engines.clock import Clock as Clock
from fedloom.engines.events import events as events
from fedloom.engines.reference import reference as reference
from fedloom.engines.run import ClientError as ClientError
from fedloom.engines.run import Counters as Counters
from fedloom.engines.run import NonFiniteUpdate as NonFiniteUpdate
from fedloom.engines.run import Record as Record
from fedloom.engines.simulate import simulate as simulate
