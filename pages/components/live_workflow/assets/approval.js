// What a run waits for, in the bar: what would be sent to whom at what cost, and the decision.

import { el, setText } from "./dom.js"
import { pathKey, plural, usdInLine } from "./format.js"
import { KeptNote } from "./kept_note.js"
import { toolCalls } from "./message_parts.js"
import { runUrl } from "./socket.js"
import { calledTools, openCalls } from "./status.js"
import { isolated, visible } from "./text.js"

export class Approval {
  constructor({ onSelect, onFault }) {
    this.onFault = onFault
    this.title = el("span", { class: "asks-title" })
    this.what = el("button", {
      type: "button",
      class: "quiet what",
      onclick: () => this.first && onSelect(pathKey(this.first.path)),
    })
    this.hint = el("span", { class: "asks-hint" })
    this.note = el("input", {
      type: "text",
      class: "note",
      maxlength: "2000",
      dir: "auto",
      placeholder: "Note for the record",
      "aria-label": "Note for the record",
    })
    this.note.addEventListener("keydown", (event) => event.stopPropagation())
    this.kept = new KeptNote(this.note)
    this.approve = el(
      "button",
      { type: "button", class: "primary approve", onclick: () => this.grant(this.meant) },
      (this.approveWords = el("span")),
      el("kbd", { "aria-hidden": "true" }, "A"),
    )
    this.all = el("button", { type: "button", class: "all", onclick: () => this.grant(this.asked) })
    this.rest = el(
      "button",
      {
        type: "button",
        class: "rest",
        title: "Approve this and all that this run would ask later",
        onclick: () => this.send("approve", { rest: true }),
      },
      "Approve the rest",
    )
    this.deny = el(
      "button",
      { type: "button", class: "deny", title: "End this run. Finished steps are kept.", onclick: () => this.refuse() },
      "Deny",
    )
    this.lines = el("div", { class: "asks" }, this.what, el("p", { class: "muted asks-line" }, this.title, this.hint))
    this.actions = el("div", { class: "asks-actions" }, this.note, this.approve, this.all, this.rest, this.deny)
    this.keys = (event) => this.key(event)
    document.addEventListener("keydown", this.keys)
  }

  destroy() {
    document.removeEventListener("keydown", this.keys)
  }

  // Returns whether a run waits for one. `selected`: the key of the step that a person looks at.
  show(model, selected) {
    const asked = model.askedFor
    this.runId = model.run?.run_id
    const forTools = asked.length === 0 && model.run?.status === "waiting"
    this.lines.hidden = (asked.length === 0 && !forTools) || model.ended
    this.actions.hidden = this.lines.hidden || forTools || model.replayed
    if (this.lines.hidden) return false
    if (forTools) return this.showTools(model)
    const chosen = asked.find((each) => each.of !== "plan" && pathKey(each.path) === selected)
    this.asked = asked
    this.first = chosen ?? asked[0]
    this.meant = chosen ? [chosen] : asked
    setText(
      this.title,
      `${waits(model)}${since(model.run)}${model.run.status === "waiting" ? "" : " · other steps still run"}`,
    )
    setText(this.what, asked.map(wanted).join(", "))
    const hint = [given(asked), gates(asked), most(asked), receivers(model, asked)].filter(Boolean).join(" · ")
    setText(this.hint, hint)
    this.hint.title = hint
    if (!model.replayed) this.kept.show(this.runId)
    const numbers = asked.map((each) => each.number).join()
    if (this.sent && this.sent !== numbers) this.sent = null
    const alone = this.meant[0].of === "tool" ? "the call" : this.meant[0].what
    const what = this.meant.length > 1 ? plural(asked.length, "request") : alone
    setText(this.approveWords, this.sent ? "Sent…" : `Approve ${visible(what)}`)
    this.approve.title = "Press A to come here, then Enter"
    this.all.hidden = this.meant.length === asked.length
    setText(this.all, asked.length === 2 ? "Approve both" : `Approve all ${asked.length}`)
    for (const button of [this.approve, this.all, this.rest, this.deny]) button.disabled = Boolean(this.sent)
    this.hear(model)
    return true
  }

  // A command that came too late, or that does not fit any more, is answered with a reason.
  hear(model) {
    if (model.replayed) return
    const refused = model.run.refused?.find((each) => each.command === this.command)
    if (!refused) return
    this.command = undefined
    this.sent = null
    this.onFault(`Not done: ${refused.reason}.`)
  }

  // The client brings what its tools return: nobody here can. Returns whether the run waits.
  showTools(model) {
    const waiting = [...model.steps.values()].filter((step) => openCalls(step).length)
    this.first = waiting[0]
    const were = model.replayed ? "The run waited for its client’s tools" : "Waits for its client’s tools"
    setText(this.what, `${were}: ${calledTools(waiting.flatMap(openCalls))}`)
    setText(this.title, since(model.run).trim())
    const hint = waiting.map((step) => `step ${pathKey(step.path)} · ${isolated(step.agent)}`).join(", ")
    setText(this.hint, hint)
    this.hint.title = hint
    return true
  }

  grant(approvals) {
    this.send("approve", { numbers: approvals.map((each) => each.number) })
  }

  refuse() {
    const reason = this.note.value.trim()
    if (!reason) {
      this.note.placeholder = "Why? Then press Deny again"
      this.note.focus()
      return
    }
    this.send("deny", { numbers: this.meant.map((each) => each.number) })
  }

  async send(decision, fields) {
    this.sent = this.asked.map((each) => each.number).join()
    this.onFault("")
    const numbers = fields.numbers ?? this.asked.map((each) => each.number)
    const body = JSON.stringify({ numbers, note: this.note.value.trim(), ...fields })
    const headers = { "content-type": "application/json" }
    try {
      const response = await fetch(runUrl(this.runId, decision), { method: "POST", headers, body })
      const answer = await response.json()
      if (!response.ok) throw new Error(answer.error)
      this.command = answer.command
      this.kept.clear()
    } catch (error) {
      this.sent = null
      this.onFault(`The decision could not be sent: ${error.message}`)
    }
  }

  // "A" leads to the button, from anywhere but a field; Enter then approves.
  key(event) {
    if (this.actions.hidden || event.key.toLowerCase() !== "a" || event.ctrlKey || event.metaKey || event.altKey) return
    const at = event.composedPath()[0]
    if (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName ?? "")) return
    event.preventDefault()
    this.approve.focus()
  }
}

function wanted(each) {
  if (each.of === "tool") return visible(each.wish)
  return `${visible(each.what)}${each.agent ? ` → ${isolated(each.agent)}` : ""}`
}

// What a call of a tool would be given; the panel has all of it.
function given(asked) {
  const calls = asked.filter((each) => each.of === "tool").flatMap((each) => toolCalls(each.messages))
  return calls.length === 1 ? `with ${isolated(calls[0].arguments || "no arguments")}` : ""
}

const waits = (model) => (model.replayed ? "The run waited for an approval" : "Waits for your approval")

function since(run) {
  const at = run.waiting_since_utc
  return at ? ` since ${new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}` : ""
}

const gates = (asked) => `gate: ${[...new Set(asked.flatMap((each) => each.rules))].map(gateInWords).join(", ")}`

function gateInWords(gate) {
  const [rule, ...rest] = gate.split(":")
  const value = visible(rest.join(":"))
  if (rule === "plan") return "before any worker is called"
  if (rule === "steps") return "before every step"
  if (rule === "tools") return "before any tool that has effects"
  if (rule === "step") return `before step ${value}`
  return rule === "usd" ? `may cost more than $${value}` : `goes to ${value}`
}

// The highest cost of all that is asked; unknown if one price is.
function most(asked) {
  const called = asked.filter((each) => each.of !== "conductor" && each.of !== "tool")
  if (!called.length) return ""
  const tokens = called.reduce((sum, each) => sum + each.most.input_tokens + each.most.output_tokens, 0)
  const usd = called.some((each) => each.most_usd === null)
    ? null
    : called.reduce((sum, each) => sum + each.most_usd, 0)
  return `at most ${plural(tokens, "token")}, ${usdInLine(usd)}`
}

function receivers(model, asked) {
  const plan = asked.some((each) => each.of === "plan") ? [...model.steps.values()].map((step) => step.agent) : []
  const agents = new Set([...asked.map((each) => each.agent), ...plan])
  const names = new Set()
  for (const each of asked.filter(({ of }) => of === "tool")) {
    const server = each.agent.split("__")[0]
    const where = model.run.listings?.[server]?.listing.where
    names.add(where ? `${server} (${where})` : server)
  }
  for (const agent of agents) {
    const worker = model.worker(agent)
    if (!worker) continue
    const host = hostOf(worker.base_url)
    names.add(
      worker.provider === "rehearsal" ? "simulated workers" : host ? `${worker.provider} at ${host}` : worker.provider,
    )
  }
  return names.size ? `goes to ${[...names].map(visible).join(", ")}` : ""
}

function hostOf(url) {
  try {
    return url ? new URL(url).host : ""
  } catch {
    return ""
  }
}
