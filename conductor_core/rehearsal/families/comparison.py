"""Competing offers, costed over a period."""

from fractions import Fraction

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing, money, number


def _cheaper_printer(slots: Slots) -> Solution | None:
    pages = int(slots["pages"])
    cost = {
        name: Fraction(int(slots[f"price_{name}"])) + Fraction(int(slots[f"cents_{name}"]) * pages, 100)
        for name in ("a", "b")
    }
    if cost["a"] == cost["b"]:
        return None
    best, other = sorted(cost, key=lambda name: cost[name])
    by_price = min("ab", key=lambda name: (int(slots[f"price_{name}"]), name != other))
    return Solution(
        f"printer {best.upper()}",
        "text",
        plan=(
            f"Cost of A: its price plus {pages} pages.",
            f"Cost of B: its price plus {pages} pages.",
            "Compare the totals, not the prices.",
        ),
        working=tuple(
            f"Printer {name.upper()}: {slots[f'price_{name}']} + {pages} × {slots[f'cents_{name}']} cents"
            f" = {money(cost[name])} euros"
            for name in ("a", "b")
        ),
        check=f"The difference is {money(cost[other] - cost[best])} euros in favour of {best.upper()}.",
        risk="comparing purchase prices only",
        slips=(
            Slip(
                f"printer {other.upper()}",
                (
                    (f"The purchase price of {by_price.upper()} is lower: {slots[f'price_{by_price}']} euros.",)
                    if by_price == other
                    else (f"A page costs {slots[f'cents_{other}']} cents with {other.upper()}.",)
                ),
            ),
        ),
    )


def _saving(slots: Slots) -> Solution | None:
    basic, per_gb, flat, gigabytes, months = (
        int(slots[name]) for name in ("basic", "per_gb", "flat", "gigabytes", "months")
    )
    metered = Fraction(basic) + Fraction(per_gb * gigabytes, 100)
    difference = abs(metered - flat) * months
    answer = money(difference)
    once = money(abs(metered - flat))
    gross = money(metered * months)
    return Solution(
        answer,
        "number",
        plan=(
            f"Monthly cost of the metered plan: {basic} plus {gigabytes} GB at {per_gb} cents.",
            f"Difference to {flat} a month.",
            f"Multiply by {months} months.",
        ),
        working=(
            f"Metered: {basic} + {gigabytes} × {per_gb} cents = {money(metered)} euros a month",
            f"Difference: |{money(metered)} − {flat}| = {once} euros a month",
            f"{once} × {months} = {answer} euros",
        ),
        check=f"Totals: {gross} against {flat * months} euros.",
        risk="giving the difference of one month",
        slips=differing(
            answer,
            Slip(once, (f"Metered: {money(metered)} euros", f"Difference: {once} euros")),
            Slip(gross, (f"{money(metered)} × {months} = {gross}",)),
            Slip(
                money(difference + months),
                (f"{money(abs(metered - flat) + 1)} × {months} = {money(difference + months)}",),
            ),
        ),
    )


def _offers(slots: Slots) -> Solution | None:
    months, gigabytes = int(slots["months"]), int(slots["gigabytes"])
    setup_a, month_a = int(slots["setup_a"]), int(slots["month_a"])
    month_b, cents_b = int(slots["month_b"]), int(slots["cents_b"])
    month_c, free_c = int(slots["month_c"]), int(slots["free_c"])
    if free_c >= months:
        return None
    metered = month_b + Fraction(cents_b * gigabytes, 100)
    total = {
        "A": Fraction(setup_a + month_a * months),
        "B": metered * months,
        "C": Fraction(month_c * (months - free_c)),
    }
    ranked = sorted(total, key=lambda name: total[name])
    if total[ranked[0]] == total[ranked[1]]:
        return None
    answer = money(total[ranked[0]])
    working = (
        f"A: {setup_a} + {months} × {month_a} = {money(total['A'])} euros",
        f"B: {months} × ({month_b} + {gigabytes} × {cents_b} cents) = {months} × {money(metered)} = "
        f"{money(total['B'])} euros",
        f"C: ({months} − {free_c}) × {month_c} = {money(total['C'])} euros",
    )
    no_fee = {**total, "A": Fraction(month_a * months)}
    no_gift = {**total, "C": Fraction(month_c * months)}
    return Solution(
        answer,
        "number",
        plan=(
            f"A over {months} months, with the set-up fee once.",
            f"B over {months} months, with {gigabytes} GB in each.",
            f"C over {months} months, less the {free_c} free ones.",
            "Take the lowest total.",
        ),
        working=(*working, f"Cheapest: {ranked[0]} at {answer} euros"),
        check=f"The next best, {ranked[1]}, costs {money(total[ranked[1]])} euros, "
        f"{money(total[ranked[1]] - total[ranked[0]])} more.",
        risk="forgetting a fee that is paid once",
        slips=differing(
            answer,
            _cheapest(no_fee, (f"A: {months} × {month_a} = {month_a * months} euros", *working[1:])),
            _cheapest(no_gift, (*working[:2], f"C: {months} × {month_c} = {month_c * months} euros")),
            _cheapest({ranked[1]: total[ranked[1]]}, working),
        ),
    )


def _cheapest(total: dict[str, Fraction], lines: tuple[str, ...]) -> Slip:
    best = min(total, key=lambda name: total[name])
    return Slip(money(total[best]), (*lines, f"Cheapest: {best} at {money(total[best])} euros"))


def _break_even(slots: Slots) -> Solution | None:
    """Finds the first whole day on which the dearer of two machines, which uses less power a day, is ahead."""
    cheap, dear = int(slots["price_a"]), int(slots["price_b"])
    use_a, use_b, cents = int(slots["use_a"]), int(slots["use_b"]), int(slots["cents"])
    if dear <= cheap or use_a <= use_b or cents == 0:
        return None
    saved = Fraction((use_a - use_b) * cents, 100)
    days = (dear - cheap) / saved
    # Strictly ahead: on an exact tie the next day decides.
    whole = int(days) + 1
    answer, a_day = str(whole), money(saved)
    running = money(Fraction(use_b * cents, 100))
    too_long = number(round(Fraction(dear * 100, use_b * cents)) if use_b else whole + 7)
    return Solution(
        answer,
        "number",
        plan=(
            f"The dearer one must win back {dear} − {cheap} euros.",
            f"It saves {use_a} − {use_b} each time, at {cents} cents.",
            "Divide, and go up to the next whole number, at which it is ahead.",
        ),
        working=(
            f"Extra price: {dear} − {cheap} = {dear - cheap} euros",
            f"Saved each time: ({use_a} − {use_b}) × {cents} cents = {a_day} euros",
            f"{dear - cheap} / {a_day} = {number(days)}",
            f"Ahead for the first time at {answer}",
        ),
        check=f"At {whole - 1} it has saved {money(saved * (whole - 1))} euros, at {answer} "
        f"{money(saved * whole)}; the extra price is {dear - cheap}.",
        risk="rounding down to a number at which it is not yet ahead",
        slips=differing(
            answer,
            Slip(
                str(whole - 1), (f"{dear - cheap} / {a_day} = {number(days)}", f"That is {whole - 1} in whole numbers")
            ),
            Slip(
                too_long,
                (
                    f"Running cost of B: {use_b} × {cents} cents = {running} euros each time",
                    f"{dear} euros divided by that is about {too_long}",
                ),
            ),
            Slip(
                str(whole + 10),
                (f"Extra price: {dear - cheap + 10 * int(saved)} euros", f"Divided by {a_day}: {whole + 10}"),
            ),
        ),
    )


FORMS = (
    Form(
        "comparison",
        "easy",
        "printers",
        lambda rng: {
            "price_a": rng.randrange(60, 120, 10),
            "cents_a": rng.randrange(9, 15),
            "price_b": rng.randrange(150, 260, 10) + 1,
            "cents_b": rng.randrange(2, 7),
            "pages": rng.randrange(600, 4000, 100),
        },
        _cheaper_printer,
    ),
    Form(
        "comparison",
        "medium",
        "data_plans",
        lambda rng: {
            "basic": rng.randrange(5, 20),
            "per_gb": rng.randrange(4, 15),
            "flat": rng.randrange(60, 95),
            "gigabytes": rng.randrange(100, 380, 20),
            "months": rng.choice((6, 12, 18, 24)),
        },
        _saving,
    ),
    Form(
        "comparison",
        "medium",
        "hosting",
        lambda rng: {
            "months": rng.choice((12, 18, 24)),
            "gigabytes": rng.randrange(200, 600, 50),
            "setup_a": rng.randrange(80, 300, 10),
            "month_a": rng.randrange(28, 45),
            "month_b": rng.randrange(8, 20),
            "cents_b": rng.randrange(4, 10),
            "month_c": rng.randrange(40, 58),
            "free_c": rng.randrange(2, 6),
        },
        _offers,
    ),
    Form(
        "comparison",
        "hard",
        "break_even",
        lambda rng: {
            "price_a": (price := rng.randrange(400, 1200, 10)),
            "price_b": price + rng.randrange(150, 900, 10),
            "use_a": (use := rng.randrange(9, 20)),
            "use_b": use - rng.randrange(3, 7),
            "cents": rng.randrange(24, 39),
        },
        _break_even,
    ),
)
