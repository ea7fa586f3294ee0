// The turns of the conversation that a run belongs to, in a row above it: each a link to its run, the newest open.

import { el, once, setText } from "./dom.js"
import { apart, pathKey, tokens } from "./format.js"
import { earlierTurns } from "./inspect_step.js"
import { inWords } from "./message_parts.js"
import { RUN_STATUS } from "./status.js"
import { isolated, visible } from "./text.js"

// Steps that are named as readers of what was said before.
const MOST_READERS = 5

export class Conversation {
  // `onOpen` is given a run's id; `onRead` the key of a step, or null for the Conductor.
  constructor({ onOpen, onRead }) {
    Object.assign(this, { onOpen, onRead })
    this.title = el("b")
    this.readers = el("div", { class: "readers muted" })
    this.list = el("div", { class: "turn-cards" })
    this.list.addEventListener("keydown", (event) => this.key(event))
    const head = el("div", { class: "turns-head" }, this.title, this.readers)
    this.element = el("nav", { class: "conversation", "aria-label": "Conversation", hidden: true }, head, this.list)
  }

  // `turns`: as `conversation.py` makes them; null: the run is the only one of its conversation.
  show(turns, model) {
    this.element.hidden = !turns?.length
    this.element.parentElement?.toggleAttribute("data-turns", !this.element.hidden)
    if (this.element.hidden) return
    const current = turns.find(({ current: is }) => is)
    setText(this.title, current ? `Turn ${current.number} of ${turns.at(-1).number}` : "Conversation")
    const had = this.list.contains(this.list.getRootNode().activeElement)
    once(this.list, JSON.stringify(turns), () => turns.map((turn, at) => this.card(turn, at === turns.length - 1)))
    if (this.shown !== `${current?.run} ${turns.length}`) {
      this.shown = `${current?.run} ${turns.length}`
      this.bring(had)
    }
    this.showReaders(model)
  }

  card({ run, number, task, said, status, tokens: spent, current }, newest) {
    const { glyph, word } = RUN_STATUS[status] ?? { glyph: "", word: status }
    const words = [visible(task), said && visible(said), `${word.toLowerCase()}, ${tokens(spent)}`].filter(Boolean)
    const onclick = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return
      event.preventDefault()
      if (!current) this.onOpen(run)
    }
    return el(
      "a",
      {
        class: newest ? "turn-card newest" : "turn-card",
        href: `?${new URLSearchParams({ run })}`,
        target: "_self",
        title: words.join("\n"),
        "aria-current": current ? "page" : null,
        "aria-label": `Turn ${number}: ${words.join(". ")}`,
        tabindex: current ? "0" : "-1",
        onclick,
      },
      el(
        "span",
        { class: "asked", dir: "auto" },
        el("span", { class: "number" }, `${number}`),
        " ",
        apart(visible(task)),
      ),
      el(
        "span",
        { class: "said-short muted" },
        el("span", { class: `status ${status}` }, said ? glyph : `${glyph} ${word.toLowerCase()}`),
        said ? el("span", { class: "answer-short", dir: "auto" }, visible(said)) : null,
        el("span", { class: "number" }, tokens(spent)),
      ),
    )
  }

  // Scrolls to the current turn, and nothing else of the page; `focus`: whether it takes the focus, too.
  bring(focus) {
    const card = this.list.querySelector("[aria-current]")
    if (!card) return
    this.list.scrollLeft = Math.max(
      0,
      card.offsetLeft - this.list.offsetLeft - (this.list.clientWidth - card.offsetWidth) / 2,
    )
    if (focus) card.focus({ preventScroll: true })
  }

  // Who read what was said before, each by one press. A Conductor of a short prompt reads the task alone.
  showReaders(model) {
    const steps = model.ordered().filter((step) => step.messages?.length && earlierTurns(model, step).length)
    const named = steps.slice(0, MOST_READERS)
    const before = model.run?.turns_before ?? []
    const prompt = model.rounds.get("")?.messages ?? []
    const planned = prompt.length > 0 && holds(prompt, before.at(-1))
    const state = [before.length, prompt.length, planned, named.map(({ path, agent }) => [path, agent])]
    once(this.readers, JSON.stringify(state), () => {
      if (!before.length) return ["The first turn"]
      const button = (words, key, title) =>
        el("button", { type: "button", class: "quiet", title, onclick: () => this.onRead(key) }, words)
      const of = (step) => button(pathKey(step.path), pathKey(step.path), `What ${isolated(step.agent)} saw of it`)
      const conductor = button("the Conductor", null, "What the Conductor read")
      const readers = [
        planned ? conductor : null,
        named.length ? `${planned ? " and " : ""}step${named.length > 1 ? "s" : ""} ` : null,
        ...named.flatMap((step, at) => (at ? [", ", of(step)] : [of(step)])),
        steps.length > named.length ? ", …" : null,
      ].filter(Boolean)
      const not = prompt.length && !planned ? ["not by ", conductor] : []
      return readers.length
        ? ["Read by ", ...readers, ...(not.length ? [", ", ...not] : [])]
        : not.length
          ? ["Read ", ...not]
          : []
    })
  }

  key(event) {
    const cards = [...this.list.children]
    const at = cards.indexOf(event.target)
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: cards.length - 1 }[event.key]
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    event.stopPropagation()
    cards[Math.max(0, Math.min(cards.length - 1, to))].focus()
  }
}

const LOOKED_AT = 200

// Whether a prompt holds the beginning of a turn.
function holds(prompt, turn) {
  const said = inWords(turn?.content ?? "")
    .trim()
    .slice(0, LOOKED_AT)
  return said !== "" && prompt.some(({ content }) => inWords(content).includes(said))
}
