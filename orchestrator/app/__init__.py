"""The use cases, a module a verb: typed request in, typed result out.

Nothing here prints or exits. Commands and Python (`lab`) make the same requests: a plan, or one of
`requests`. All that measures becomes a campaign on the same way:

| verb | module | what it prepares |
|---|---|---|
| bench, run | `measuring.run_plan` | `preparing.task_of`: a plan, its files, its devices (`attached`) |
| run --resume | `resuming.resume` | `reopen`: a stored campaign, its files, the devices of its open runs |
| ab | `pairing.compare_ab` | `sides_of`, `prepare_pair`: two plans on the same devices, in turns |
| bisect | `bisecting.bisect` | the sides of one comparison after the other |
| device check --sessions | `pairing.measure_equal_sides` | one plan several times |
| a farm's job | `extensions.farm.job` | a task with the files of its submission |

`preparing.planned` makes the cases, `choice` says which build runs on which device, and
`preparing.prepared_of` makes the campaign; `start` stores it and holds its devices;
`measuring.measure` runs it, and returns a `MeasuredCampaign` with all that is reported of it.
`comparing` (also of the pairs of `ab`), `stored`, `status`, `farm` and `exporting` read what is
stored; `importing` stores what others measured.
`phones`, `virtual_phones`, `builds` and `doctor` are about what is there. `workspace` makes every
adapter.
"""
