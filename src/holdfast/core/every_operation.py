"""All operations and results as two unions, for traces and for tests that must not forget one."""

from __future__ import annotations

from holdfast.core import decider_operations as deciders
from holdfast.core import flow_waits as flows
from holdfast.core import function_operations as functions
from holdfast.core import operations as kernel
from holdfast.core import projection_operations as projections
from holdfast.core import state_operations as graphs

AnyOperation = (
    kernel.StartRun
    | kernel.ClaimWork
    | kernel.CompleteWork
    | kernel.FailWork
    | kernel.SteerWork
    | kernel.KillWork
    | kernel.ReleaseWork
    | kernel.LapseWork
    | kernel.RecordProgress
    | kernel.BuryUnknown
    | kernel.CancelRun
    | kernel.PauseRun
    | kernel.ResumeRun
    | kernel.RetryRun
    | kernel.ReattemptNode
    | kernel.SkipNode
    | kernel.ForkRun
    | flows.AwaitEvents
    | flows.WakeAhead
    | kernel.StoreGraph
    | kernel.ReshapeRun
    | kernel.DiscardDead
    | kernel.SetHold
    | functions.TakeTurn
    | functions.ContinueAs
    | functions.SendEvent
    | functions.BroadcastEvent
    | functions.RedeliverEvent
    | functions.DropEvent
    | deciders.ExecuteInput
    | deciders.EnqueueInput
    | deciders.DrainInbox
    | deciders.RefuseInput
    | deciders.ForgetSnapshot
    | projections.AdvanceProjection
    | projections.FailProjection
    | projections.RebuildProjection
    | projections.SkipEvent
    | graphs.RecordCall
    | graphs.AskPerson
    | graphs.AnswerPerson
    | graphs.ForkGraph
)

AnyResult = kernel.Started | kernel.Settled | kernel.Changed | functions.Stepped | functions.Sent | deciders.Executed
