// The turns of a step whose worker called tools, of its client or of servers of its pool: what it said beside, each
// call, and what came back.

import { copyButton, el, once, setText } from "./dom.js"
import { count, seconds, sizeInBytes, tokens, usdInLine } from "./format.js"
import { inLines, isJson } from "./json_text.js"
import { EFFECTS, TOOL_OUTCOME, isOurs } from "./status.js"
import { isolated, renderMarkdown, visible } from "./text.js"

// So many lines and characters of a text are open at once; of more, its beginning.
const FEW_LINES = 8
const FEW = 800
const SPARE_LINES = 4 // fewer lines than these are not hidden behind a button
const WHOLE = 40_000

// Returns the function that brings the turns of a step up to date. Those that are over are not drawn again.
export function turnList(body, { onRead }) {
  let of = ""
  return (model, step) => {
    const turns = step.turns ?? []
    const run = `${model.run?.run_id}/${step.path}`
    if (of !== run) body.replaceChildren()
    of = run
    while (body.children.length > turns.length) body.lastChild.remove()
    while (body.children.length < turns.length) body.append(el("section", { class: "turn" }))
    body.hidden = turns.length === 0
    turns.forEach((turn, index) => {
      const waits = step.status === "running" ? (step.askedCalls ?? []).map(({ identity }) => identity) : []
      const ran = turn.ran.map(({ call_id, outcome }) => `${call_id}${outcome}`)
      const state = `${turn.results !== null}|${turn.partial.length}|${ran}|${waits}|${step.status}`
      once(body.children[index], state, () => turnParts(model, step, turn, index, onRead))
    })
    bring(body, step.status === "running" ? turns.length : 0)
  }
}

// Scrolls the panel to a turn that has just come, unless somebody reads there.
function bring(body, number) {
  const scroller = body.closest(".inspector-scroll")
  const comes = number > 1 && body.brought !== number
  body.brought = number
  if (comes && scroller && !scroller.matches(":hover, :focus-within"))
    scroller.scrollTop = body.lastChild.offsetTop - scroller.offsetTop
}

function turnParts(model, step, turn, index, onRead) {
  const results = new Map((turn.results ?? turn.partial).map((result) => [result.call_id, result]))
  const agent = turn.agent && turn.agent !== step.agent ? ` · ${isolated(turn.agent)}` : ""
  const waits = step.status === "running" && turn.results === null
  return [
    el("header", {}, el("b", {}, `Turn ${index + 1}${agent}`), el("span", { class: "muted number" }, spent(turn))),
    turn.text.trim() ? said(turn.text) : null,
    ...turn.calls.map((call) => {
      const result = results.get(call.call_id)
      if (isOurs(turn, call)) return ourCall(model, step, turn, call, result, onRead)
      return [callBox(call, onRead), result ? resultBox(result, onRead, tookMs(turn)) : openCall(turn, waits)]
    }),
    turn.said.trim()
      ? el("div", { class: "added" }, el("p", { class: "muted small" }, "The client added"), said(turn.said))
      : null,
    turn.anew ? toldAnew(turn.anew) : null,
  ]
    .flat()
    .filter(Boolean)
}

// A call that a tool server of the pool carries out: which server and tool, whether it changes something, what was
// given, and what became of it.
function ourCall(model, step, turn, call, result, onRead) {
  const ran = turn.ran.find(({ call_id }) => call_id === call.call_id)
  const known = ran ?? offeredTool(model.run, call.name)
  const box = callBox(call, onRead, known ?? null)
  return [box, result && ran ? outcomeBox(result, ran, onRead) : openOurCall(step, call, ran)]
}

// Returns a tool that a server offered, by the name by which workers call it: {server, tool, effects}.
function offeredTool(run, name) {
  const offers = Object.values(run?.listings ?? {}).flatMap(({ listing }) => listing.tools)
  return offers.find(({ spec }) => spec.name === name)
}

// What tool servers offered the worker of a step, and why some offered nothing. Empty: its pool names none for it.
export function offeredTools(run, worker) {
  const asked = worker?.tools ?? []
  const servers = [...new Set(asked.map((each) => each.split(".")[0]))]
  return servers.map((server) => {
    const listed = run?.listings?.[server]
    if (!listed) return el("p", { class: "muted" }, `${visible(server)} was not asked for its tools.`)
    const { listing, recorded } = listed
    const where = [visible(listing.title), visible(listing.where)].filter(Boolean).join(" · ")
    const tools = listing.tools.filter(({ tool }) => asked.includes(server) || asked.includes(`${server}.${tool}`))
    return el(
      "div",
      { class: "tool-offer" },
      el("header", {}, el("b", {}, isolated(server)), el("span", { class: "muted" }, where)),
      listing.fault ? el("p", { class: "bad" }, `✕ ${visible(listing.fault)}`) : null,
      recorded ? el("p", { class: listing.fault ? "warn" : "muted" }, ofEarlierRun(listing)) : null,
      ...tools.map(offerLine),
      ...listing.left_out.map((why) => el("p", { class: "muted" }, `⊘ Left out: ${visible(why)}`)),
    )
  })
}

const ofEarlierRun = ({ fault }) =>
  fault
    ? "⚠ These are of the run whose answers this one reuses. None can be called."
    : "These are of the run that this one resumes."

function offerLine({ tool, effects, spec }) {
  const { glyph, word } = EFFECTS[effects]
  return el(
    "p",
    { class: "offer-line", title: spec.description ? visible(spec.description) : null },
    el("b", { class: "tool-name" }, isolated(tool)),
    el("span", { class: `effects ${effects ? "warn" : "muted"}` }, `${glyph} ${word}`),
    el("span", { class: "muted offer-words" }, visible(spec.description)),
  )
}

function openOurCall(step, { call_id: id }, ran) {
  const running = step.status === "running"
  const asked = running && step.askedCalls?.some(({ identity }) => identity === id)
  const line = (look, words) => el("p", { class: `result-line ${look}` }, words)
  if (asked) return line("warn", "‖ Waits for approval")
  if (!running) return line("muted", ran ? "No result came before the run ended." : "It was not called.")
  return ran ? line("now", "◔ Being called now…") : line("muted", "○ Not called yet")
}

// What a tool server brought: the outcome in words, how long it took, and how much of it the worker was told.
function outcomeBox({ text }, { outcome, duration_ms: ms, size_bytes: size }, onRead) {
  const { glyph, word } = TOOL_OUTCOME[outcome]
  const told = new TextEncoder().encode(text).length
  const much = size > told ? `cut, of ${sizeInBytes(size)}` : size ? sizeInBytes(size) : ""
  const took = ms === null || ms === 0 ? "" : `after ${seconds(ms)}`
  const words = `${glyph} ${word[0].toUpperCase()}${word.slice(1)}`
  const facts = [took, much].filter(Boolean).join(" · ")
  const name = `tool-result ${outcome === "returned" ? "" : outcome === "unknown" ? "doubt" : "error"}`.trim()
  return answerBox({ name, words, facts, text, onRead })
}

// What the client told the run anew, as a handoff to another agent does: it holds from the next call on.
function toldAnew({ system, tools }) {
  const named = tools.map((tool) => isolated(tool.name)).join(", ") || "none"
  return el(
    "div",
    { class: "added" },
    el("p", { class: "muted small" }, `From here on · tools: ${named}`),
    system.trim() ? said(system) : el("p", { class: "muted small" }, "No system text"),
  )
}

const spent = ({ usage, cost_usd }) =>
  `${usage.estimated ? "≈ " : ""}${tokens(usage.input_tokens + usage.output_tokens)} · ${usdInLine(cost_usd)}`

function said(text) {
  const prose = el("div", { class: "prose", dir: "auto" })
  prose.append(renderMarkdown(text.slice(0, WHOLE)))
  return prose
}

function openCall(turn, waits) {
  const at = turn.called_at_utc
  const since = at ? ` since ${new Date(at).toLocaleTimeString([], { timeStyle: "medium" })}` : ""
  return el(
    "p",
    { class: `result-line ${waits ? "warn" : "muted"}` },
    waits ? `⚒ Waits for the client${since}` : "No result came before the run ended.",
  )
}

// Tools take the client's time, in which the run's clock stands.
function tookMs({ called_at_utc: called, returned_at_utc: returned }) {
  return called && returned ? Math.max(0, new Date(returned) - new Date(called)) : null
}

// A call of a tool: its name, and what it was given, in lines where that is JSON. What is copied is as it was written.
// `tool`: of a server of the pool; its own names, and whether it changes something.
export function callBox({ name, arguments: given, call_id: id }, onRead, tool = null) {
  const effects = tool && EFFECTS[tool.effects]
  const named = tool?.server ? `${tool.server}.${tool.tool}` : tool ? name.replace("__", ".") : name
  return el(
    "div",
    { class: "tool-call", title: id ? `Call ${visible(id)}` : null },
    el(
      "header",
      {},
      el("span", { class: "tool-sign", "aria-hidden": "true" }, "⚒"),
      el(
        "b",
        { class: "tool-name", title: tool ? visible(`${tool.tool} of the server ${tool.server}`) : null },
        isolated(named),
      ),
      effects
        ? el("span", { class: `effects ${tool.effects ? "warn" : "muted"}` }, `${effects.glyph} ${effects.word}`)
        : null,
      el("span", { class: "spring" }),
      given ? copyButton(`Copy the arguments of ${visible(named)}`, () => given) : null,
    ),
    given
      ? folded(given, `Arguments of ${isolated(named)}`, onRead)
      : el("p", { class: "muted small" }, "no arguments"),
  )
}

// What a tool brought; one that failed says so.
export function resultBox(result, onRead, ms = null) {
  const { text, is_error: failed } = result
  return answerBox({
    name: failed ? "tool-result error" : "tool-result",
    words: failed ? "✕ Error" : "Result",
    facts: ms === null ? "" : `after ${seconds(ms)}`,
    text,
    onRead,
  })
}

function answerBox({ name, words, facts, text, onRead }) {
  return el(
    "div",
    { class: name },
    el(
      "header",
      {},
      el("b", {}, words),
      el("span", { class: "muted number", title: facts || null }, facts),
      el("span", { class: "spring" }),
      text ? copyButton("Copy the result", () => text) : null,
    ),
    text.trim() ? folded(text, words, onRead) : el("p", { class: "muted small" }, "It brought nothing."),
  )
}

// A text of which a long one is folded to its beginning, and opens in place; the reader has one that is longer still.
export function folded(text, title, onRead, { lines: few = FEW_LINES } = {}) {
  const shown = text.length <= WHOLE && isJson(text) ? inLines(text) : text
  const lines = shown.split("\n")
  const pre = el("pre", { class: "raw", dir: "auto" })
  const most = lines.slice(0, few).join("\n").slice(0, FEW)
  if (lines.length <= few + SPARE_LINES && shown.length <= FEW) {
    setText(pre, visible(shown))
    return pre
  }
  const more = el("button", { type: "button", class: "more" })
  let open = false
  const draw = () => {
    const all = lines.length > few ? `Show all ${count(lines.length)} lines` : "Show all"
    setText(pre, visible(open ? shown.slice(0, WHOLE) : `${most.trimEnd()} …`))
    setText(more, open ? (shown.length > WHOLE ? "Read all of it" : "Fold") : all)
    more.setAttribute("aria-expanded", open ? "true" : "false")
  }
  more.addEventListener("click", () => {
    if (open && shown.length > WHOLE) return onRead({ title, text, name: "text" })
    open = !open
    draw()
  })
  draw()
  return el("div", { class: "folded" }, pre, more)
}
