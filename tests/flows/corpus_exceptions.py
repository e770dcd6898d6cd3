# ruff: noqa: RUF005
"""try, except, else, finally, raise: failures of actions and of expressions go the same way."""

from __future__ import annotations

from typing import Any

from tests.flows.actions import (
    Refused,
    ShippingError,
    TruckBroke,
    add,
    charge,
    double,
    echo,
    fail,
    fail_if,
    refuse,
    risky,
    ship,
)
from tests.flows.corpus import case


@case(("good",), ("bad",))
async def try_except(order: str) -> str:
    try:
        return await ship(order)
    except ShippingError as e:
        return f"refund: {e}"


@case(("good",), ("bad",))
async def goes_on_after_handler(order: str) -> list[Any]:
    note = "fine"
    try:
        await ship(order)
        note = "shipped"
    except TruckBroke:
        note = await echo("broke")
    return [note, await add(1)]


@case((1,))
async def uncaught_failure(n: int) -> None:
    await double(n)
    await fail("boom")


@case((1,))
async def failure_of_other_type(n: int) -> str:
    try:
        await fail("boom")
    except KeyError:
        return "wrong"
    return "never"


@case((0,), (1,))
async def first_handler_that_matches(n: int) -> str:
    try:
        if n:
            await fail("value")
        await fail_if(5)
    except LookupError:
        return "lookup"
    except (ValueError, TypeError) as e:
        return f"value or type: {e}"
    except Exception:
        return "anything"
    return "never"


@case((0,), (1,))
async def inner_before_outer(n: int) -> list[str]:
    notes = []
    try:
        try:
            if n:
                await fail("inner")
            else:
                await fail_if(9)
        except ValueError as e:
            notes.append(f"inner {e}")
        notes.append("between")
    except KeyError as e:
        notes.append(f"outer {e}")
    return notes


@case((1,))
async def handler_raises_another(n: int) -> str:
    try:
        try:
            await fail("first")
        except ValueError as e:
            raise KeyError(f"second after {e}") from e
    except KeyError as e:
        return f"{e} {type(e).__name__}"


@case((1,))
async def bare_raise(n: int) -> str:
    try:
        try:
            await fail("again")
        except ValueError:
            await double(n)
            raise
    except Exception as e:
        return f"outer {e}"


@case((1,))
async def bare_raise_uncaught(n: int) -> None:
    try:
        await fail("again")
    except ValueError:
        await double(n)
        raise


@case((0,), (1,))
async def else_runs_without_failure(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        out.append(await fail_if(n))
    except KeyError as e:
        out.append(str(e))
    else:
        out.append("else")
        out.append(await double(3))
    return out


@case((1,))
async def else_is_not_guarded(n: int) -> str:
    try:
        await double(n)
    except ValueError:
        return "never"
    else:
        await fail("from else")
    return "never"


@case((0,), (1,))
async def finally_always_runs(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        try:
            out.append(await fail_if(n))
        finally:
            out.append(await echo("finally"))
    except KeyError:
        out.append("caught")
    return out


@case((0,), (1,))
async def finally_with_return(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        if n:
            return [await double(n)]
        out.append(1)
    finally:
        await echo("cleanup")
    return out


@case((0,), (1,))
async def finally_overrides_return(n: int) -> str:
    try:
        if n:
            return await echo("try")
        await fail("lost")
    finally:
        return "finally"  # noqa: B012


@case((1,))
async def return_value_is_computed_before_finally(n: int) -> int:
    x = n
    try:
        return x + 1
    finally:
        x = 100
        await double(x)


@case((4,))
async def finally_with_break_and_continue(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            out.append(await double(i))
        finally:
            out.append(await echo("f"))
        out.append("end")
    return out


@case((3,))
async def return_through_two_finallies(n: int) -> list[Any]:
    out = await echo(["start"])
    for i in range(n):
        try:
            try:
                if i == 1:
                    return [*out, i]
            finally:
                out = [*out, await echo("inner")]
        finally:
            out = out + [await echo("outer")]
    return out


@case((0,), (1,), (2,))
async def everything_of_try(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        out.append("body")
        if n == 1:
            await fail("one")
        if n == 2:
            await fail_if(5)
    except ValueError as e:
        out.append(f"except {e}")
    except KeyError:
        out.append("key")
        await double(2)
    else:
        out.append("else")
    finally:
        out.append(await echo("finally"))
    return out


@case((1,))
async def handler_fails_and_finally_runs(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        try:
            await fail("a")
        except ValueError:
            await fail_if(7)
        finally:
            out.append(await echo("cleaned"))
    except KeyError as e:
        out.append(str(e))
    return out


@case((3,))
async def loop_goes_on_after_caught(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(n + 2):
        try:
            out.append(await fail_if(i, n - 2))
        except KeyError as e:
            out.append(f"no {e}")
    return out


@case((3,))
async def retry_by_hand(n: int) -> list[Any]:
    attempts = 0
    while True:
        attempts += 1
        try:
            found = await fail_if(5 - attempts, 5 - n)
            break
        except KeyError:
            if attempts > 4:
                raise
    return [attempts, found]


@case((5,), (0,))
async def try_around_a_loop(n: int) -> list[Any]:
    out: list[Any] = []
    try:
        for i in range(n):
            out.append(await fail_if(i, 2))
    except KeyError as e:
        out.append(f"stopped by {e}")
    return out


@case(({},), ({"a": 0},), ({"a": 2},))
async def errors_of_expressions(data: dict[str, int]) -> str:
    kept = await echo(data)
    try:
        return str(10 / kept["a"])
    except KeyError as e:
        return f"key {e} {len(e.args)} {e.args[0]}"
    except ZeroDivisionError as e:
        return f"zero: {e}"


@case(([],))
async def error_in_arguments(items: list[int]) -> str:
    try:
        await double(items[0])
    except IndexError as e:
        return str(e)
    return "never"


@case((0,))
async def error_in_pure_function(n: int) -> str:
    try:
        return str(risky(n))
    except ArithmeticError as e:
        return f"{type(e).__name__}: {e}"


@case((1,))
async def raise_own_exception(n: int) -> None:
    m = await add(n)
    raise ShippingError(f"after {m}")


@case((1,))
async def raise_with_attributes(n: int) -> list[Any]:
    try:
        raise Refused("no", n)
    except Refused as e:
        await double(1)
        return [str(e), e.code, list(e.args)]


@case((4,))
async def attributes_of_a_failure(n: int) -> list[Any]:
    try:
        await refuse("nope", n)
    except ValueError as e:
        return [str(e), e.code, isinstance(e, Refused), isinstance(e, KeyError), type(e).__name__]
    return []


@case((3,))
async def arguments_of_any_kind(n: int) -> list[Any]:
    try:
        raise ValueError((1, n), {"k": {n}}, b"x")
    except ValueError as e:
        problem = e
    await double(1)
    return [list(problem.args), str(problem), repr(problem)]


@case((1,))
async def raise_a_class(n: int) -> None:
    await double(n)
    raise NotImplementedError


@case((1,))
async def failure_is_kept_for_later(n: int) -> str:
    saved = ""
    try:
        await fail("early")
    except ValueError as e:
        saved = str(e)
        problem = e
    await double(n)
    return f"{saved} {problem} {problem.args[0]}"


@case((1,))
async def raise_what_was_kept(n: int) -> None:
    problem = None
    try:
        await fail("kept")
    except ValueError as e:
        problem = e
    await double(n)
    if problem is not None:
        raise problem


@case((1,))
async def nested_handlers(n: int) -> list[str]:
    out = []
    try:
        await fail("a")
    except ValueError as first:
        try:
            await fail_if(3)
        except KeyError as second:
            out.append(f"{first}/{second}")
        out.append(str(first))
    return out


@case((1,))
async def bare_except(n: int) -> str:
    try:
        await fail("x")
    except:  # noqa: E722
        return await echo("caught")
    return "never"


@case((0,), (-1,))
async def failure_in_second_action(cents: int) -> list[Any]:
    done = []
    try:
        first = await charge("a", 5)
        done.append(first.item)
        second = await charge("b", cents)
        done.append(second.item)
    except ValueError as e:
        done.append(str(e))
    return done


@case((1,))
async def old_value_after_failed_assignment(n: int) -> int:
    x = n
    try:
        x = await fail_if(50)
    except KeyError:
        await double(1)
    return x


@case((1,))
async def unpacking_failure_keeps_old_values(n: int) -> list[int]:
    a, b = 1, 2
    try:
        a, b = await echo([7])
    except ValueError:
        await double(n)
    return [a, b]


@case((0,), (1,), (2,))
async def return_in_every_part(n: int) -> str:
    try:
        await fail_if(n, 0)
    except KeyError:
        if n == 1:
            return await echo("handler")
    else:
        return "else"
    return "after"


@case((2,))
async def try_in_try_in_loop(n: int) -> list[Any]:
    out: list[Any] = []
    for i in range(3):
        try:
            try:
                out.append(await fail_if(i, 0))
            except KeyError:
                if i == n:
                    raise
                out.append("inner")
        except KeyError as e:
            out.append(f"outer {e}")
            break
        finally:
            out.append(i)
    return out


@case((1,))
async def assert_is_caught(n: int) -> str:
    try:
        assert n > 5, "too small"
    except AssertionError as e:
        return f"{e}"
    return "never"


@case((1,))
async def exception_without_message(n: int) -> str:
    try:
        raise ValueError
    except ValueError as e:
        return f"[{e}] {e!r} {len(e.args)}"


@case((1,))
async def repr_of_a_failure(n: int) -> str:
    try:
        await fail("shown")
    except ValueError as e:
        return f"{e!r}"
    return "never"


@case((1,))
async def unbound_in_handler(n: int) -> str:
    try:
        await fail("x")
        y = 1
    except ValueError:
        return str(y)
    return "never"
