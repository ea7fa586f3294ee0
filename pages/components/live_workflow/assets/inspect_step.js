// The tabs about a step. Each builds its parts once and returns the function that brings them up to date.

import { PACKED } from "./base.js"
import { aboutStep, decisionLines, decisionState } from "./decisions.js"
import { copyButton, el, readButton, setText } from "./dom.js"
import { stepRows } from "./figures.js"
import { accessList, count, pathKey, plural, roundName, shortHash, tokens } from "./format.js"
import { imagesIn, inWords } from "./message_parts.js"
import { beginning, cutNotice, notices } from "./panes.js"
import { partElements, picture } from "./pictures.js"
import { notWholeNote } from "./status.js"
import { StreamedMarkdown, isolated, visible } from "./text.js"

const GIVEN = "A person gave this output. Nothing was sent, so this step saw nothing."
const WOULD_SEND = "If you approve, exactly this is sent"

export const stepTabs = { Saw: saw, Output: output, Messages: messages, Cost: cost, Edit: edit }

function output(body, { onRead }) {
  let current = null
  const title = () => `Step ${pathKey(current.path)} · ${isolated(current.agent)}`
  const all = readButton("Show all of the output", () =>
    onRead({ title: title(), text: current.output, name: `step-${pathKey(current.path)}` }),
  )
  const bar = el(
    "div",
    { class: "bar" },
    all,
    copyButton("Copy the output", () => current.output),
  )
  const notice = el("div", { class: "notice" })
  const prose = el("div", { class: "prose" })
  const facts = el("p", { class: "muted small facts-line" })
  const markdown = new StreamedMarkdown(prose)
  const partial = el("div", {})
  body.append(bar, notice, prose, partial, facts)
  return (model, step) => {
    current = step
    const running = step.status === "running"
    const lines = [...notices(model, step), ...(running ? [] : cutNotice(step.output))]
    all.hidden = !step.output
    notice.hidden = lines.length === 0
    once(notice, lines.map((line) => line.text).join("\n"), () =>
      lines.map((line) => el("p", { class: line.kind }, line.node ?? line.text)),
    )
    markdown.show(running ? step.output : beginning(step.output), !running)
    if (!step.output && !running) once(prose, "none", () => [el("p", { class: "muted" }, "No output.")])
    once(partial, step.attempts.length, () => step.attempts.filter((attempt) => attempt.partial).map(partialText))
    once(facts, step.output_sha256, () => (step.output_sha256 ? ["sha256 ", hash(step.output_sha256)] : []))
  }
}

function partialText(attempt) {
  const title = el("summary", {}, `What attempt ${attempt.attempt} had sent before it failed`)
  return el("details", {}, title, el("pre", { class: "raw", dir: "auto" }, visible(attempt.partial)))
}

// Shows which outputs this step saw, and which were withheld from it.
function saw(body, { onSelect }) {
  const parts = el("div", { class: "shared-list" })
  const decisions = el("div", { class: "decisions" })
  const facts = el("p", { class: "muted small facts-line" })
  body.append(parts, decisions, facts)
  return (model, step) => {
    const begun = step.given || step.messages.length > 0 || step.granted.length > 0 || step.withheld.length > 0
    const state = `${step.status}|${begun}|${step.identity}|${step.granted.length}|${step.withheld.length}|${preview(model, step)}|${step.asked?.number}`
    once(parts, state, () => sawParts(model, step, begun, onSelect))
    const decided = aboutStep(model, step).filter((each) => each.status !== "open")
    once(decisions, decisionState(decided), () => decisionLines(decided, model.run))
    once(facts, `${step.identity}|${accessList(step.access_list)}`, () => [
      "Access list ",
      el("code", {}, accessList(step.access_list)),
      ...(step.identity ? [" · identity ", hash(step.identity)] : []),
      ` · ${providerOf(model, step)}`,
    ])
  }
}

const preview = (model, step) =>
  step.reads.map((index) => firstLine(model, [...step.path.slice(0, -1), index])).join("|")

function sawParts(model, step, begun, onSelect) {
  if (step.given) return [el("p", { class: "muted" }, GIVEN)]
  if (!begun) return [...planned(model, step, onSelect), ...asked(step)]
  const granted = step.granted.map((part) => sharedCard(model, part, onSelect))
  // Only an existing output can be withheld. An output that was withheld has a digest.
  const withheld = step.withheld.filter((part) => part.sha256)
  const absent = step.withheld.filter((part) => !part.sha256)
  const seen = granted.length
    ? granted
    : [el("p", { class: "muted" }, "This step saw its instruction and no earlier output.")]
  const images = step.messages.flatMap(({ content }) => imagesIn(content))
  const shown = images.length
    ? el("div", { class: "pictures" }, el("p", { class: "muted" }, "With the task:"), ...images.map(picture))
    : null
  return [shown, ...seen, withheldBox(step.granted, withheld, absent), absent.length ? absentBox(absent) : null].filter(
    Boolean,
  )
}

function withheldBox(granted, withheld, absent) {
  const sum = (parts) => parts.reduce((total, part) => total + part.tokens, 0)
  const earlier = sum(granted) + sum(withheld)
  const ratio = earlier ? ` ${count(sum(granted))} of ${count(earlier)} earlier tokens granted.` : ""
  const none = granted.length || absent.length ? "" : " No step came before."
  const head = withheld.length ? `Withheld: ${plural(withheld.length, "output")}.` : `Withheld: nothing.${none}`
  const names = withheld.map((part) =>
    el(
      "div",
      { class: "withheld-part" },
      `✕ ${pathKey(part.path)} · ${isolated(part.agent)} `,
      part.given ? `${givenWord(part.given)} ` : "",
      size(part),
    ),
  )
  return el("div", { class: "withheld" }, el("div", {}, head, ratio), names)
}

function absentBox(absent) {
  const names = absent.map((part) => `${pathKey(part.path)} · ${isolated(part.agent)}`).join(", ")
  const title = "Its access list does not grant them either; they had no output that could have been withheld."
  return el("div", { class: "absent", title }, `Not there yet when it started: ${names}`)
}

// Whoever approves a step first sees what would be sent.
const asked = (step) => (step.asked?.messages.length ? messageList(step.asked.messages, WOULD_SEND) : [])

// Before the step starts, the plan says what it will see.
function planned(model, step, onSelect) {
  const prefix = step.path.slice(0, -1)
  if (!step.reads.length) return [el("p", { class: "muted" }, "Its access list grants no earlier output.")]
  const rows = step.reads.map((index) => {
    const source = model.step(pathKey([...prefix, index]))
    return source && sharedCard(model, { path: source.path, agent: source.agent, tokens: null, sha256: null }, onSelect)
  })
  const never = model.ended && model.run.status !== "planned"
  const later = step.asked ? "Will see:" : "Will see, as soon as they are done:"
  const when = never ? "Was not run. It would have seen:" : later
  return [el("p", { class: "muted" }, when), ...rows.filter(Boolean)]
}

function sharedCard(model, part, onSelect) {
  const key = pathKey(part.path)
  const index = model.agentIndex(part.agent)
  const title = el("div", {}, el("b", {}, `from ${key} · ${isolated(part.agent)} `))
  if (part.given) title.append(el("span", { class: "given" }, givenWord(part.given)), " ")
  if (part.tokens !== null) title.append(size(part))
  const said = part.tokens === null ? "" : notWholeNote(model.step(key))
  if (said) title.append(el("div", { class: "warn" }, said))
  const line = el("div", { class: "preview", dir: "auto" }, firstLine(model, part.path))
  const card = el(
    "button",
    { type: "button", class: "shared", title: `Open step ${key}`, onclick: () => onSelect(key) },
    title,
    line,
  )
  card.style.setProperty("--agent", `var(--agent-${index === null ? "none" : index % 8})`)
  return card
}

const givenWord = (how) => (how === "written" ? "✎ written by a person" : "⚲ pinned by a person")

function size({ tokens: length, sha256 }) {
  return el("span", { class: "muted number" }, `${tokens(length)} · `, hash(sha256))
}

function firstLine(model, path) {
  const text = model.step(pathKey(path))?.output ?? ""
  return visible(text.slice(0, 160)).replace(/\s+/g, " ").trim() || "…"
}

function providerOf(model, step) {
  const worker = model.worker(step.agent)
  const provider = worker ? `provider ${worker.provider}` : "the Conductor itself"
  return step.model && step.model !== worker?.model ? `${provider}, model ${visible(step.model)}` : provider
}

// Shows exactly what was sent, message by message, as text.
function messages(body) {
  const list = el("div", { class: "messages" })
  body.append(list)
  return (model, step) =>
    once(list, `${step.identity}|${step.messages.length}|${step.status === "waiting"}|${step.asked?.number}`, () => {
      if (step.asked?.messages.length) return messageList(step.asked.messages, WOULD_SEND)
      return step.messages.length
        ? messageList(step.messages)
        : [el("p", { class: "muted" }, emptyMessages(model, step))]
    })
}

export function messageList(sent, title = "Exactly as sent") {
  return [
    el(
      "p",
      { class: "muted small" },
      `${title}: ${plural(sent.length, "message")}, ${count(sent.reduce((sum, { content }) => sum + inWords(content).length, 0))} characters.`,
    ),
    ...sent.map(({ role, content }, index) =>
      el(
        "section",
        { class: `message ${role}` },
        el(
          "header",
          {},
          el("b", {}, role),
          el("span", { class: "spring" }),
          copyButton(`Copy message ${index + 1}`, () => inWords(content)),
        ),
        ...partElements(content),
      ),
    ),
  ]
}

function emptyMessages(model, step) {
  if (model.rounds.has(pathKey(step.path)))
    return `The Conductor was asked; its prompt is with the plan of ${roundName(step.path)}.`
  if (step.given) return GIVEN
  return step.status === "skipped" ? "Nothing was sent." : "Nothing has been sent yet."
}

function cost(body) {
  const table = el("dl", { class: "figures-list" })
  body.append(table)
  return (model, step) => {
    const rows = stepRows(model, step)
    while (table.children.length > rows.length * 2) table.lastChild.remove()
    rows.forEach(([name, value], index) => {
      if (!table.children[index * 2]) table.append(el("dt"), el("dd", { class: "number" }))
      setText(table.children[index * 2], name)
      setText(table.children[index * 2 + 1], visible(value))
    })
  }
}

function edit(body, { onEdit, onAsk }) {
  const list = el("dl", { class: "figures-list" })
  const button = el("button", { type: "button", class: "primary" }, "Edit this step")
  const hint = el("p", { class: "muted small" })
  let path = null
  button.addEventListener("click", () => onEdit(path))
  const ask = (kind, text, title) => el("button", { type: "button", title, onclick: () => onAsk(kind, path) }, text)
  const again = ask(
    "again",
    "Run this step again…",
    "Alone or from here on, once or many times, with this or other workers",
  )
  const write = ask("write", "Write output…", "Write what this step answers; no model is asked")
  const pin = ask("pin", "Pin output", "Keep this output, whatever the step would see")
  body.append(list, el("div", { class: "actions" }, button, again, write, pin), hint)
  return (model, step, { editable }) => {
    path = step.path
    once(list, `${step.instruction}|${step.agent}|${accessList(step.access_list)}`, () => [
      el("dt", {}, "Agent"),
      el("dd", {}, isolated(step.agent)),
      el("dt", {}, "Access list"),
      el("dd", {}, el("code", {}, accessList(step.access_list))),
      el("dt", {}, "Instruction"),
      el("dd", { dir: "auto" }, visible(step.instruction)),
    ])
    const inner = step.path.length > 1
    const possible = editable && model.changeable && (model.ended || step.status === "waiting")
    button.disabled = !possible || inner
    again.disabled = write.disabled = button.disabled || !model.ended
    pin.disabled = write.disabled || Boolean(step.given) || !step.output || step.incomplete
    setText(hint, editHint(model, possible, inner))
  }
}

function editHint(model, possible, inner) {
  if (PACKED) return "This is a copy of a run. Import the file into an inspector to change its plan."
  if (inner)
    return "This step belongs to a plan that the Conductor wrote while the run went on; edit the step that opened it."
  if (model.ended || !model.changeable)
    return possible
      ? "A re-run is a new run; steps whose input stays the same are reused."
      : "The plan can be edited when the run is over, or waits."
  const later = "Once the run has ended, a step can be asked again and its output written or pinned."
  return possible
    ? `This run goes on with the changed step as soon as somebody approves it. ${later}`
    : `This step has begun; change the steps that have not. ${later}`
}

export function hash(value) {
  return el("code", { class: "hash", title: value ?? "" }, shortHash(value))
}

// Rebuilds a part only when what it shows has changed.
export function once(element, state, build) {
  if (element.shownState === state) return
  element.shownState = state
  element.replaceChildren(...build())
}
