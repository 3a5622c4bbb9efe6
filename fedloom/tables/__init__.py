"""Tables: from a file or a frame to a task, and from a model's outputs to predictions in the table's own values."""

from fedloom.tables.columns import Column as Column
from fedloom.tables.columns import Table as Table
from fedloom.tables.columns import as_table as as_table
from fedloom.tables.models import table_model as table_model
from fedloom.tables.noticed import notes as notes
from fedloom.tables.preparation import Category as Category
from fedloom.tables.preparation import Classes as Classes
from fedloom.tables.preparation import Number as Number
from fedloom.tables.preparation import Preparation as Preparation
from fedloom.tables.preparation import Quantity as Quantity
from fedloom.tables.reading import read as read
from fedloom.tables.task import from_file as from_file
from fedloom.tables.task import from_frame as from_frame
from fedloom.tables.writing import write as write
