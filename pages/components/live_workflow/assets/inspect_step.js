// The tabs about a step. Each builds its parts once and returns the function that brings them up to date.

import { BASE, PACKED } from "./base.js"
import { aboutStep, decisionLines, decisionState } from "./decisions.js"
import { copyButton, el, once, readButton, setText } from "./dom.js"
import { edit } from "./edit_step.js"
import { stepRows } from "./figures.js"
import { byAgent } from "./fold.js"
import { accessList, agentColour, count, pathKey, plural, roundName, shortHash } from "./format.js"
import { contentTokens, imagesIn, inWords, partInWords, partsOf, turnMessages, typeOf } from "./message_parts.js"
import { beginning, cutNotice, notices } from "./panes.js"
import { STEP_STATUS, notWholeNote, shownStatus } from "./status.js"
import { StreamedMarkdown, isolated, renderMarkdown, visible } from "./text.js"
import { callBox, folded, offeredTools, resultBox, turnList } from "./turns.js"

const GIVEN = "A person gave this output. Nothing was sent, so this step saw nothing."
const WOULD_SEND = "If you approve, exactly this is sent"

export const stepTabs = { "What it saw": saw, Output: output, Messages: messages, Cost: cost, Edit: edit }

function output(body, { onRead }) {
  let current = null
  const title = () => `Step ${pathKey(current.path)} · ${isolated(current.agent)}`
  const all = readButton("Show all of the output", () =>
    onRead({ title: title(), text: current.output, name: `step-${pathKey(current.path)}` }),
  )
  const final = el("b", { class: "final" }, "Then its output")
  const bar = el(
    "div",
    { class: "tools" },
    final,
    all,
    copyButton("Copy the output", () => current.output),
  )
  const turns = el("div", { class: "turns" })
  const showTurns = turnList(turns, { onRead })
  const notice = el("div", { class: "notice" })
  const prose = el("div", { class: "prose" })
  const facts = el("p", { class: "muted small facts-line" })
  const markdown = new StreamedMarkdown(prose)
  const partial = el("div", {})
  body.append(turns, bar, notice, prose, partial, facts)
  return (model, step) => {
    current = step
    const running = step.status === "running"
    showTurns(model, step)
    const called = step.turns?.length > 0
    bar.hidden = called && step.turns.at(-1).results === null
    final.hidden = !called
    const lines = [...notices(model, step), ...(running ? [] : cutNotice(step.output))]
    all.hidden = !step.output
    notice.hidden = lines.length === 0
    once(notice, lines.map((line) => line.text).join("\n"), () =>
      lines.map((line) => el("p", { class: line.kind }, line.node ?? line.text)),
    )
    markdown.show(running ? step.output : beginning(step.output), !running)
    if (!step.output && !running) once(prose, "none", () => [el("p", { class: "muted" }, "No output.")])
    once(partial, step.attempts.length, () => step.attempts.flatMap(attemptTexts))
    once(facts, step.output_sha256, () => (step.output_sha256 ? ["sha256 ", hash(step.output_sha256)] : []))
  }
}

// What an attempt had sent, and what its worker was told about it.
function attemptTexts({ attempt, partial, correction }) {
  const box = (words, text) =>
    el(
      "details",
      { open: Boolean(correction) },
      el("summary", {}, words),
      el("pre", { class: "raw", dir: "auto" }, visible(text)),
    )
  const sent = correction ? `What attempt ${attempt} wrote` : `What attempt ${attempt} had sent before it failed`
  return [partial && box(sent, partial), correction && box("What the worker was told then", correction)].filter(Boolean)
}

// Shows which outputs this step read, which were withheld from it, and which were not there yet: each with its text.
function saw(body, { onSelect, onRead }) {
  const parts = el("div", { class: "read-list" })
  const decisions = el("div", { class: "decisions" })
  body.append(parts, decisions)
  const open = new Map() // what a person has unfolded or folded, by the step's key
  const told = el("div", { class: "read-list" })
  const back = el("div", { class: "messages" })
  const offers = el("div", { class: "tool-offers" })
  parts.before(told)
  decisions.before(offers, back)
  return (model, step) => {
    once(told, `${step.identity}|${step.messages.length}`, () => toldParts(model, step, onRead))
    const turns = step.turns ?? []
    const listed = Object.values(model.run?.listings ?? {}).map(({ listing, recorded }) => [
      listing.server,
      listing.fault,
      recorded,
    ])
    once(offers, `${step.identity}|${step.agent}|${listed}`, () => offered(model, step))
    once(back, `${step.identity}|${turns.length}|${turns.at(-1)?.results === null}`, () => sentBack(step, onRead))
    const begun = step.given || step.messages.length > 0 || step.granted.length > 0 || step.withheld.length > 0
    const lengths = [...step.granted, ...step.withheld].map((part) => {
      const earlier = model.step(pathKey(part.path))
      return `${earlier?.status}${part.sha256 ? earlier?.output.length : ""}`
    })
    const state = `${step.status}|${begun}|${step.identity}|${lengths}|${step.asked?.number}`
    once(parts, state, () => sawParts(model, step, begun, { onSelect, onRead, open }))
    foldWhatDoesNotFit(parts, body.parentElement)
    const decided = aboutStep(model, step).filter((each) => each.status !== "open")
    once(decisions, decisionState(decided), () => decisionLines(decided, model.run))
  }
}

// What stands in its messages before its own instruction: the client's system text, and the conversation so far.
function toldParts(model, step, onRead) {
  const system = step.messages.filter(({ role }) => role === "system")
  const before = earlierTurns(model, step)
  const words = (told) => told.map(({ content }) => inWords(content)).join("\n\n")
  const size = (told) =>
    plural(
      told.reduce((sum, each) => sum + contentTokens(each.content), 0),
      "token",
    )
  const text = words(system)
  return [
    ...(system.length
      ? [
          section("System text", `≈ ${size(system)}`),
          el("div", { class: "told-text" }, folded(text, "System text", onRead, { lines: 3 })),
        ]
      : []),
    ...(before.length
      ? [
          section("The conversation before", `${plural(before.length, "turn")} · ≈ ${size(before)}`),
          foldedTurns(before, onRead),
        ]
      : []),
  ]
}

// The messages to a step that is told the task begin with the conversation; outputs of other steps come after it.
export function earlierTurns(model, step) {
  const before = model.run?.turns_before ?? []
  const first = step.messages.findIndex(({ role }) => role !== "system")
  const sent = first < 0 ? [] : step.messages.slice(first, first + before.length)
  return before.length && JSON.stringify(sent) === JSON.stringify(before) ? sent : []
}

// So many of the last turns of a conversation are shown at first.
const LAST_TURNS = 2

function foldedTurns(before, onRead) {
  const list = el("div", { class: "told-list" })
  const more = el("button", { type: "button", class: "more" })
  let open = before.length <= LAST_TURNS
  const draw = () => {
    const shown = open ? before : before.slice(-LAST_TURNS)
    list.replaceChildren(...shown.map((message) => saidBox(message, onRead)))
    setText(more, open ? "Fold" : `Show all ${count(before.length)} turns`)
    more.setAttribute("aria-expanded", open ? "true" : "false")
  }
  more.hidden = open
  more.addEventListener("click", () => {
    open = !open
    draw()
  })
  draw()
  return el("div", { class: "told-turns" }, more, list)
}

const saidBox = ({ role, content }, onRead) =>
  el(
    "section",
    { class: `told ${role}` },
    el("b", { class: "role" }, role),
    ...partsOf(content).flatMap((part) =>
      part.kind === "text" ? [folded(part.text, role, onRead, { lines: 4 })] : partElements([part], onRead),
    ),
  )

// Which tools of its pool the step could call.
function offered(model, step) {
  const offers = step.given ? [] : offeredTools(model.run, model.worker(step.agent))
  return offers.length ? [section("Tools it was offered"), ...offers] : []
}

// What its turns with tools brought into its next calls.
function sentBack(step, onRead) {
  const turns = step.turns ?? []
  if (!turns.length) return []
  return [
    section("Then, sent back with each later call", plural(turns.length, "turn")),
    ...turns.flatMap(turnMessages).map((message) => saidBox(message, onRead)),
  ]
}

function sawParts(model, step, begun, given) {
  if (step.given) return [el("p", { class: "muted" }, GIVEN)]
  if (!begun) return [...planned(model, step, given), ...asked(step)]
  // Only an existing output can be withheld. An output that was withheld has a digest.
  const withheld = step.withheld.filter((part) => part.sha256)
  const absent = step.withheld.filter((part) => !part.sha256)
  const images = step.messages.flatMap(({ content }) => imagesIn(content))
  const earlier = step.granted.length + withheld.length
  const sum = (list) => list.reduce((total, part) => total + part.tokens, 0)
  const all = sum(step.granted) + sum(withheld)
  const ratio = `${step.granted.length} of ${plural(earlier, "earlier output")} · ${count(sum(step.granted))} of ${plural(all, "token")}`
  const fits = step.granted.reduce((total, part) => total + textOf(model, part).length, 0) <= FITS
  const read = step.granted.map((part, index) =>
    outputBox(model, part, { ...given, of: all, shown: fits || index === 0 }),
  )
  return [
    images.length
      ? el("div", { class: "pictures" }, el("p", { class: "muted" }, "With the task:"), ...images.map(picture))
      : null,
    section(step.status === "running" ? "It reads" : "It read", earlier ? ratio : ""),
    ...(read.length ? read : [el("p", { class: "muted" }, "Its instruction and no earlier output.")]),
    el(
      "div",
      { class: "withheld" },
      section("Withheld from it", withheld.length ? heldInWords(withheld, sum(withheld)) : ""),
      ...(withheld.length
        ? partBoxes(model, withheld, {
            make: (part) => outputBox(model, part, { ...given, of: all, shown: false, held: true }),
            name: "withheld",
            look: "held",
            open: given.open,
          })
        : [el("p", { class: "muted" }, earlier || absent.length ? "Nothing." : "Nothing: no step came before.")]),
    ),
    ...(absent.length
      ? [
          section("Not there yet when it started"),
          ...partBoxes(model, absent, {
            make: (part) => absentBox(model, part, given),
            name: "absent",
            look: "held absent",
            open: given.open,
          }),
        ]
      : []),
  ].filter(Boolean)
}

const heldInWords = (parts, tokensOfAll) => `${plural(parts.length, "output")} · ${plural(tokensOfAll, "token")}`

// So many characters of text are open at once; of a longer first one, its beginning.
const FITS = 1_600
const WHOLE = 40_000

// The first output stays open; a person's own choice stays, too.
function foldWhatDoesNotFit(parts, scroller) {
  const boxes = [...parts.querySelectorAll(".got")].slice(1).filter((box) => box.byItself)
  if (boxes.length && scroller.scrollHeight > scroller.clientHeight) for (const box of boxes) box.toLine()
}

const textOf = (model, part) => model.step(pathKey(part.path))?.output ?? ""
const section = (words, aside = "") =>
  el("h4", { class: "section" }, words, aside && el("span", { class: "number" }, aside))

// Draws who wrote an output; a press on the name leads to that step.
function source(model, part, { onSelect }, ...more) {
  const key = pathKey(part.path)
  const index = model.agentIndex(part.agent)
  const header = el(
    "header",
    {},
    el("span", { class: "dot", "aria-hidden": "true" }),
    el(
      "button",
      { type: "button", class: "name", title: `Go to step ${key}`, onclick: () => onSelect(key) },
      `${key} · ${isolated(part.agent)}`,
    ),
    part.given ? el("span", { class: "given" }, givenWord(part.given)) : null,
    ...more,
  )
  header.style.setProperty("--agent", agentColour(index))
  return header
}

// An output: its source, its size, and its text, which unfolds in place. `held`: it was withheld.
function outputBox(model, part, { onSelect, onRead, open, of, shown, held = false }) {
  const key = pathKey(part.path)
  const text = textOf(model, part)
  const lines = text.split("\n").filter((line) => line.trim()).length
  const share = of ? ` · ${Math.round((100 * part.tokens) / of)} %` : ""
  const size = el("span", { class: "muted number" }, `${plural(part.tokens, "token")}${share}`)
  const fold = el("button", { type: "button", class: "quiet fold" })
  const prose = el("div", { class: "prose", dir: "auto" })
  const more = el("button", { type: "button", class: "more" })
  const lacking = held ? "" : notWholeNote(model.step(key))
  const box = el(
    "div",
    { class: held ? "held" : "got", "data-step": key },
    source(model, part, { onSelect }, size, el("span", { class: "spring" }), fold),
    ...(lacking ? [el("p", { class: "warn" }, lacking)] : []),
    prose,
    more,
  )
  box.style.setProperty("--agent", box.firstChild.style.getPropertyValue("--agent"))
  const whole = text.length > WHOLE
  const draw = (to) => {
    box.dataset.shown = to
    setText(fold, to === "none" ? "Show what it missed" : "Fold")
    fold.hidden = to === "line" || (to === "none" ? !text : !held && lines < 2)
    fold.setAttribute("aria-expanded", to === "whole" ? "true" : "false")
    setText(
      more,
      whole && to === "whole" ? "Read all of it" : lines > 1 ? `Show all ${count(lines)} lines` : "Show all",
    )
    more.hidden = to === "none" || (to === "whole" ? !whole : lines < 2 && text.length < LINE)
    if (to === "none") prose.replaceChildren()
    else if (to === "line") prose.replaceChildren(visible(text.slice(0, LINE)).replace(/\s+/g, " ").trim() || "…")
    else prose.replaceChildren(renderMarkdown(text.slice(0, to === "whole" ? WHOLE : FITS)))
  }
  const choose = (to) => {
    open.set(key, to)
    draw(to)
  }
  fold.addEventListener("click", () => {
    choose(box.dataset.shown === "none" ? "whole" : held ? "none" : "line")
    box.scrollIntoView({ block: "nearest" })
  })
  more.addEventListener("click", () => {
    if (box.dataset.shown === "whole")
      onRead({ title: `Step ${key} · ${isolated(part.agent)}`, text, name: `step-${key}` })
    else choose("whole")
  })
  box.byItself = !held && !open.has(key)
  box.toLine = () => draw("line")
  draw(open.get(key) ?? (held ? "none" : !shown ? "line" : text.length > FITS ? "part" : "whole"))
  return box
}

const LINE = 160

function absentBox(model, part, given) {
  const key = pathKey(part.path)
  const running = model.step(key)?.status === "running"
  const look = el(
    "button",
    { type: "button", class: "more", onclick: () => given.onSelect(key) },
    running ? "Watch it" : "Go to it",
  )
  const how = el("span", { class: "muted" }, running ? "still writing" : "")
  const title = "Its access list does not grant it either; there was no output that could have been withheld."
  return el(
    "div",
    { class: "held absent", title },
    source(model, part, given, how, el("span", { class: "spring" }), look),
  )
}

// Whoever approves a step first sees what would be sent.
const asked = (step) => (step.asked?.messages.length ? messageList(step.asked.messages, WOULD_SEND) : [])

// Before the step starts, the plan says what it will read.
function planned(model, step, given) {
  const prefix = step.path.slice(0, -1)
  if (!step.reads.length) return [el("p", { class: "muted" }, "Its access list grants no earlier output.")]
  const never = model.ended && model.run.status !== "planned"
  const coming = step.asked ? "It will read" : "It will read, as soon as they are done"
  const rows = step.reads.map((index) => model.step(pathKey([...prefix, index]))).filter(Boolean)
  return [
    section(never ? "It did not run. It would have read" : coming),
    ...rows.map((row) => {
      const { glyph, word } = STEP_STATUS[shownStatus(row)]
      return el("div", { class: "got" }, source(model, row, given, el("span", { class: "muted" }, `${glyph} ${word}`)))
    }),
  ]
}

const givenWord = (how) => (how === "written" ? "✎ written by a person" : "⚲ pinned by a person")

function providerOf(model, step) {
  const worker = model.worker(step.agent)
  const provider = worker ? `provider ${worker.provider}` : "the Conductor itself"
  return step.model && step.model !== worker?.model ? `${provider}, model ${visible(step.model)}` : provider
}

// Shows exactly what was sent, message by message, as text.
function messages(body, { onRead }) {
  const list = el("div", { class: "messages" })
  const facts = el("div", { class: "muted small" })
  body.append(list, facts)
  return (model, step) => {
    once(facts, `${step.identity}|${accessList(step.access_list)}|${step.granted.length}|${step.withheld.length}`, () =>
      factsOf(model, step),
    )
    const turns = step.turns ?? []
    const state = `${step.identity}|${step.messages.length}|${step.status === "waiting"}|${step.asked?.number}`
    once(list, `${state}|${turns.length}|${turns.at(-1)?.results === null}|${step.attempts.length}`, () => {
      if (step.asked?.messages.length) return messageList(step.asked.messages, WOULD_SEND, onRead)
      if (!step.messages.length) return [el("p", { class: "muted" }, emptyMessages(model, step))]
      const later = [...turns.flatMap(turnMessages), ...corrections(step)]
      return [
        ...messageList(step.messages, "Exactly as sent", onRead),
        ...(later.length ? messageList(later, "Sent after these with later calls", onRead) : []),
      ]
    })
  }
}

// What a worker whose answer was in another form than asked for was told about it.
const corrections = (step) =>
  step.attempts
    .filter(({ correction }) => correction)
    .flatMap(({ partial, correction }) => [
      ...(partial ? [{ role: "assistant", content: partial }] : []),
      { role: "user", content: correction },
    ])

// Who was asked, and the digests of all that it read and did not read.
function factsOf(model, step) {
  const digests = (words, parts) =>
    parts
      .filter((part) => part.sha256)
      .map((part) =>
        el(
          "p",
          { class: "facts-line" },
          `${words} ${pathKey(part.path)} · ${isolated(part.agent)}: `,
          hash(part.sha256),
        ),
      )
  return [
    el(
      "p",
      { class: "facts-line" },
      "Access list ",
      el("code", {}, accessList(step.access_list)),
      ...(step.identity ? [" · identity ", hash(step.identity)] : []),
      ` · ${providerOf(model, step)}`,
    ),
    ...digests("Read", step.granted),
    ...digests("Withheld", step.withheld),
  ]
}

export function messageList(sent, title = "Exactly as sent", onRead = () => {}) {
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
        ...partElements(content, onRead),
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

export function hash(value) {
  return el("code", { class: "hash", title: value ?? "" }, shortHash(value))
}

// A long list of outputs that a step did not read, as one line per agent. A line unfolds into its outputs in place.

// Draws `parts`. `make` draws one by itself; `name` begins the keys of what is unfolded in `open`; `look` is the class of
// the box around the lines.
function partBoxes(model, parts, { make, name, look, open }) {
  const groups = byAgent(parts)
  if (groups === null) return parts.map(make)
  return groups.flatMap((group) =>
    group.parts.length > 1 ? [groupBox(model, group, { make, name, look, open })] : group.parts.map(make),
  )
}

function groupBox(model, group, { make, name, look, open }) {
  const key = `${name} ${group.agent}`
  const tokens = group.parts.reduce((total, part) => total + (part.tokens ?? 0), 0)
  const fold = el("button", { type: "button", class: "quiet fold" })
  const said = `${group.which} ${isolated(group.agent)}`
  const header = el(
    "header",
    {},
    el("span", { class: "dot", "aria-hidden": "true" }),
    el("b", { class: "group-name" }, said),
    tokens ? el("span", { class: "muted number" }, plural(tokens, "token")) : null,
    el("span", { class: "spring" }),
    fold,
  )
  const index = model.agentIndex(group.agent)
  header.style.setProperty("--agent", agentColour(index))
  const inside = el("div", { class: "read-list" })
  const draw = () => {
    const shown = open.get(key) === true
    setText(fold, shown ? "Fold" : "Show")
    fold.setAttribute("aria-label", `${fold.textContent} ${said}`)
    fold.setAttribute("aria-expanded", shown ? "true" : "false")
    inside.replaceChildren(...(shown ? group.parts.map(make) : []))
  }
  fold.addEventListener("click", () => {
    open.set(key, open.get(key) !== true)
    draw()
  })
  draw()
  return el("div", { class: `${look} group` }, header, inside)
}

// Draws the parts of a message.

const SHA256 = /^[0-9a-f]{64}$/

const partElements = (content, onRead) =>
  partsOf(content).map((part) => {
    if (part.kind === "image") return picture(part)
    if (part.kind === "tool_call") return callBox(part, onRead)
    if (part.kind === "tool_result") return resultBox(part, onRead)
    return el("pre", { class: "raw", dir: "auto" }, visible(partInWords(part)))
  })

// Shows an image with what the record says of it. A click opens it by itself.
function picture(image) {
  const said = `${typeOf(image)} · ${image.width} × ${image.height} · ${count(Math.max(1, image.size_bytes / 1000))} kB`
  const caption = el("figcaption", { class: "muted small" }, `${said} · sha256 ${shortHash(image.sha256)}`)
  if (!SHA256.test(image.sha256)) return el("figure", { class: "picture" }, caption)
  const url = PACKED ? PACKED.image(image.sha256) : new URL(`api/contents/${image.sha256}`, BASE)
  if (url === null) return el("figure", { class: "picture" }, caption)
  const shown = el("img", { src: url, alt: `Image, ${image.width} by ${image.height} pixels`, loading: "lazy" })
  shown.addEventListener("error", () =>
    shown.replaceWith(el("p", { class: "muted" }, "This image is not kept any more.")),
  )
  if (PACKED) return el("figure", { class: "picture" }, shown, caption) // no browser opens such an address by itself
  return el("figure", { class: "picture" }, el("a", { href: url, target: "_blank", rel: "noopener" }, shown), caption)
}
