// The page's model of one run. It folds the messages of the live route into steps and rounds by path.

import { estimateTokens, pathKey, tokens } from "./format.js"
import { contentTokens, turnMessages } from "./message_parts.js"
import { openCalls, openTurn, takeAdvice } from "./status.js"

const ENDED = new Set([
  "planned",
  "completed",
  "refused",
  "filtered",
  "cut",
  "empty",
  "failed",
  "denied",
  "cancelled",
  "interrupted",
  "damaged",
  "too_new",
  "key_away",
  "erased",
])

// The phases of a model in which text comes.
const WRITES = new Set(["thinking", "writing"])
const AT_REST = new Set(["queued", "waiting"])

export class RunModel {
  constructor() {
    this.run = null
    this.sequence = -1
    this.steps = new Map()
    this.rounds = new Map()
    this.drafts = new Map()
    this.layout = null
    this.timeline = null // of a run that is over
    this.shape = ""
    this.conclusion = null // {kind, text, formula} of the run's answer
    this.values = new Map() // by the key of a step, the value that its whole output marks
    this.startedAt = 0
    this.stoodAt = 0
    this.edited = null // the plan under a person's hands, drawn in place of the run's
    this.stopped = false // failed, and the log could not even take its end
    this.replayed = false // shows a run as it stood, not as it stands
    this.now = () => performance.now()
  }

  get ended() {
    return this.run !== null && ENDED.has(this.run.status)
  }

  // Says whether the log has the run's end, so that the run can be continued.
  get editable() {
    return this.ended && !this.stopped && !this.replayed
  }

  // Says whether the plan can change: after the run, by a new one, or in this one while it waits for an approval.
  get changeable() {
    return this.editable || (this.run?.status === "waiting" && this.openCalls.length === 0)
  }

  // The calls of tools whose results the run's client has to bring.
  get openCalls() {
    return [...this.steps.values()].flatMap(openCalls)
  }

  get planning() {
    return this.run !== null && !this.ended && this.steps.size === 0
  }

  // Folds one message. Returns what it changed: {structure, run, plan, steps: Set of path keys}.
  apply(message) {
    const touched = { structure: false, run: false, plan: false, steps: new Set() }
    if (message.type === "snapshot") return this.replace(message)
    if (message.sequence <= this.sequence) return touched
    this.sequence = message.sequence
    if (message.type === "delta") this.applyDelta(message, touched)
    else if (message.type === "plan_delta") this.applyPlanDelta(message, touched)
    else if (message.type === "progress") this.applyProgress(message, touched)
    else if (message.type === "patch") this.applyPatch(message, touched)
    return touched
  }

  replace(message) {
    const { root, ...run } = message.run
    takeAdvice(message.advice)
    this.sequence = message.sequence
    this.run = run
    this.steps.clear()
    this.rounds.clear()
    this.drafts.clear()
    this.addRound(root)
    for (const draft of message.drafts) this.setDraft(draft)
    this.layout = message.layout
    this.shape = message.shape
    this.timeline = message.timeline
    this.conclusion = message.conclusion
    this.values = new Map(Object.entries(message.values ?? {}))
    this.stopped = message.stopped === true
    this.startedAt = this.now() - message.elapsed_ms
    this.stoodAt = message.elapsed_ms
    this.closeDrafts()
    this.markAsked()
    return { structure: true, run: true, plan: true, steps: new Set(this.steps.keys()) }
  }

  addRound({ steps, ...round }) {
    this.rounds.set(pathKey(round.path), round)
    for (const { round: inner, ...step } of steps) {
      this.steps.set(pathKey(step.path), step)
      if (inner) this.addRound(inner)
    }
  }

  setDraft(draft) {
    const steps = draft.steps.map((step, index) => ({
      ...emptyStep([...draft.round, index]),
      ...step,
      status: "draft",
    }))
    this.drafts.set(pathKey(draft.round), steps)
  }

  // Nobody goes on writing the steps of a plan whose run is over. Says whether there are such steps.
  closeDrafts() {
    const drafted = this.ended ? this.draftSteps() : []
    for (const step of drafted) step.status = "unfinished"
    return drafted.length > 0
  }

  applyDelta({ path, text, reasoning, output_tokens }, touched) {
    const key = pathKey(path)
    const step = this.steps.get(key)
    if (!step) return
    if (!WRITES.has(step.progress?.phase)) step.progress = null
    if (reasoning) step.reasoning += text
    else step.output += text
    step.liveTokens = output_tokens
    touched.steps.add(key)
  }

  applyProgress({ path, round, progress }, touched) {
    const known = path ? this.steps.get(pathKey(path)) : this.rounds.get(pathKey(round))
    if (!known) return
    known.progress = progress
    if (path) touched.steps.add(pathKey(path))
    else touched.run = true
  }

  applyPlanDelta({ round, text, reasoning, draft, layout }, touched) {
    const known = this.rounds.get(pathKey(round))
    if (!known) return
    if (!WRITES.has(known.progress?.phase)) known.progress = null
    if (reasoning) known.reasoning += text
    else known.raw += text
    touched.plan = true
    if (draft) {
      this.setDraft(draft)
      touched.structure = true
    }
    if (layout) this.layout = layout
  }

  applyPatch(message, touched) {
    const rested = AT_REST.has(this.run.status)
    Object.assign(this.run, message.run)
    // While a run is queued or waits, its clock stands.
    const startedAt = this.now() - message.elapsed_ms
    this.startedAt = rested ? startedAt : Math.min(this.startedAt, startedAt)
    this.stoodAt = message.elapsed_ms
    touched.run = true
    for (const round of message.rounds) {
      const key = pathKey(round.path)
      if (!this.rounds.has(key)) touched.structure = true
      this.rounds.set(key, { ...round }) // a copy: it changes, and a replay takes the message again
      if (round.status !== "unfinished") this.drafts.delete(key)
      touched.plan = true
    }
    for (const step of message.steps) {
      const key = pathKey(step.path)
      if (!this.steps.has(key)) touched.structure = true
      this.steps.set(key, { ...step })
      if (message.values?.[key] === undefined) this.values.delete(key)
      else this.values.set(key, message.values[key])
      touched.steps.add(key)
    }
    if (message.layout) {
      this.layout = message.layout
      touched.structure = true
    }
    if (message.shape !== undefined) this.shape = message.shape
    if (message.timeline !== undefined) this.timeline = message.timeline
    if (message.conclusion !== undefined) this.conclusion = message.conclusion
    if (this.ended && this.closeDrafts()) touched.structure = true
    if (touched.structure) this.dropStrays()
    if (message.run.approvals) touched.structure = true
    if (message.run.approvals || message.run.status || message.steps.length) this.markAsked(touched)
  }

  // The requests that nobody has decided yet.
  get askedFor() {
    return (this.run?.approvals ?? []).filter((approval) => approval.status === "open")
  }

  // Marks the steps that wait for an approval, each with its request, or with those for its calls of tools.
  markAsked(touched) {
    for (const step of this.steps.values()) Object.assign(step, { asked: null, askedCalls: [] })
    for (const approval of this.askedFor) {
      const step = approval.of === "plan" ? null : this.steps.get(pathKey(approval.path))
      if (step?.status === "waiting") step.asked = approval
      if (step && approval.of === "tool") step.askedCalls.push(approval)
    }
    for (const [key, step] of this.steps) {
      const slot = this.waitsForSlot(step)
      if (slot !== Boolean(step.slot)) touched?.steps.add(key)
      step.slot = slot
    }
  }

  // Says whether a step waits for nothing but its worker, which answers as many calls as it may.
  waitsForSlot(step) {
    if (this.run?.status !== "running" || step.status !== "waiting" || step.asked || !this.worker(step.agent))
      return false
    const above = step.path.slice(0, -1)
    if (this.askedFor.some((approval) => approval.of === "plan" && pathKey(approval.path) === pathKey(above)))
      return false
    if (!above.length && !this.isNeeded(step)) return false
    return step.reads.every((index) => Boolean(this.steps.get(pathKey([...above, index]))?.finish_reason))
  }

  // Says whether the run's answer needs a step of the first plan.
  isNeeded(step) {
    const chosen = this.run.last_step ?? null
    if (chosen === null) return true
    const needed = new Set()
    const ahead = [chosen]
    while (ahead.length) {
      const index = ahead.pop()
      if (!needed.has(index)) ahead.push(...(this.steps.get(String(index))?.reads ?? []))
      needed.add(index)
    }
    return needed.has(step.path[0])
  }

  // A plan that is written again may have fewer steps than the earlier one.
  dropStrays() {
    for (const [key, step] of this.steps) {
      const plan = this.rounds.get(pathKey(step.path.slice(0, -1)))?.workflow
      if (!plan || step.path.at(-1) >= plan.steps.length) this.steps.delete(key)
    }
  }

  // Returns the step whose answer is the run's: the plan's last, or the one that the run was to end with.
  lastStep() {
    const chosen = this.run?.last_step ?? null
    const steps = [...this.steps.values()].filter((step) => step.path.length === 1)
    return chosen === null ? steps.at(-1) : this.steps.get(String(chosen))
  }

  // Returns the current form of a step of the edited plan, by its key in the editor.
  editedStep(key) {
    return this.edited?.steps.find((step) => step.key === key)
  }

  step(key) {
    return this.steps.get(key) ?? this.draftSteps().find((step) => pathKey(step.path) === key)
  }

  draftSteps() {
    return [...this.drafts].flatMap(([key, steps]) => (this.hasSteps(key) ? [] : steps))
  }

  hasSteps(roundKey) {
    return this.steps.has(roundKey ? `${roundKey}.0` : "0")
  }

  // Returns all steps, each followed by the steps of its inner round.
  ordered() {
    const below = (roundKey) => {
      const prefix = roundKey ? `${roundKey}.` : ""
      const drafts = this.drafts.get(roundKey) ?? []
      const listed = []
      for (let index = 0; ; index += 1) {
        const step = this.steps.get(`${prefix}${index}`) ?? drafts[index]
        if (!step) return listed
        listed.push(step, ...(this.rounds.has(`${prefix}${index}`) ? below(`${prefix}${index}`) : []))
      }
    }
    return below("")
  }

  elapsedMs() {
    if (this.run === null) return 0
    if (this.ended) return this.run.duration_ms ?? this.run.last_at_ms
    if (AT_REST.has(this.run.status)) return this.stoodAt
    return this.now() - this.startedAt
  }

  stepMs(step) {
    if (step.duration_ms !== null && step.status !== "running") return step.duration_ms
    if (step.started_ms === null) return null
    if (step.status === "cancelled" || step.status === "unread") return Math.max(0, this.elapsedMs() - step.started_ms)
    if (step.status === "running" && !this.ended) return Math.max(0, this.elapsedMs() - step.started_ms)
    return null
  }

  // Returns what a step spent, with its round: the plan and its steps. {input, output, estimated, cost, known, listed}
  spentOn(step) {
    const key = pathKey(step.path)
    const own = [...this.steps.values()].filter(({ path }) => key === pathKey(path) || within(path, step.path))
    const rounds = [...this.rounds.values()].filter(
      ({ path }) => path.length && (pathKey(path) === key || within(path, step.path)),
    )
    const parts = [...own, ...rounds]
    const sum = (of) => parts.reduce((total, part) => total + (of(part) ?? 0), 0)
    // What nobody has told of any part stays unknown.
    const told = (name) =>
      parts.some(({ usage }) => (usage[name] ?? null) !== null) ? sum(({ usage }) => usage[name]) : null
    const names = new Set(parts.flatMap(({ usage }) => Object.keys(usage)))
    names.delete("estimated")
    return {
      usage: {
        ...Object.fromEntries([...names].map((name) => [name, told(name)])),
        estimated: parts.some(({ usage }) => usage.estimated),
      },
      cost_usd: parts.some((part) => part.cost_usd === null) ? null : sum((part) => part.cost_usd),
      known_usd: sum((part) => part.known_usd),
      at_list_price: parts.some((part) => part.at_list_price),
      cost_at_most: parts.some((part) => part.cost_at_most),
    }
  }

  stepTokens(step) {
    if (this.rounds.has(pathKey(step.path))) return this.spentOn(step).usage.output_tokens
    if (step.status === "running") {
      const before = (step.turns ?? []).reduce((sum, { usage }) => sum + usage.output_tokens, 0)
      if (openTurn(step)) return before
      return before + (step.liveTokens ?? estimateTokens(step.output + step.reasoning))
    }
    return step.usage.output_tokens || estimateTokens(step.output)
  }

  // Returns the tokens of a step in words, with a sign if they are estimated.
  stepTokensSaid(step) {
    const { usage } = this.rounds.has(pathKey(step.path)) ? this.spentOn(step) : step
    const guessed = step.status !== "running" && (usage.estimated || !usage.output_tokens)
    const written = this.stepTokens(step)
    return `${guessed && written ? "≈ " : ""}${tokens(written)}`
  }

  // Returns the tokens so far: those that are counted, and estimates for what active calls have read and written.
  totalTokens() {
    const spent = this.run.usage.input_tokens + this.run.usage.output_tokens
    return (this.ended ? [] : this.calls()).reduce((sum, { read, written }) => sum + read + written, spent)
  }

  // Returns USD so far in the form for ``usd`` of format.js: what is counted, and estimates for active calls.
  cost() {
    let { cost_usd: total, known_usd: known } = this.run
    for (const { price, read, written } of this.ended ? [] : this.calls()) {
      const live = price ? (read * price.input + written * price.output) / 1e6 : null
      total = total === null || live === null ? null : total + live
      known += live ?? 0
    }
    return { total, known }
  }

  // Returns the active calls: to the Conductor for a round, and to workers.
  calls() {
    const planning = [...this.rounds.values()].filter((round) => round.status === "planning" && round.messages.length)
    const running = [...this.steps.values()].filter(
      (step) => step.status === "running" && !openTurn(step) && this.worker(asked(step)),
    )
    // As the engine estimates them: each message has a role and separators.
    const tokensOf = (messages) => messages.reduce((sum, { content }) => sum + contentTokens(content) + 4, 0)
    return [
      ...planning.map(({ messages, raw, reasoning }) => ({
        price: this.conductorPrice(),
        read: tokensOf(messages),
        written: estimateTokens(raw) + estimateTokens(reasoning),
      })),
      ...running.map((step) => ({
        price: priceOf(this.worker(asked(step))),
        read: tokensOf([...step.messages, ...(step.turns ?? []).flatMap(turnMessages)]),
        written: step.liveTokens ?? estimateTokens(step.output + step.reasoning),
      })),
    ]
  }

  conductorPrice() {
    return this.run.conductor ? priceOf(this.run.conductor) : null
  }

  agentIndex(name) {
    const names = this.run?.pool.workers.map((worker) => worker.name) ?? this.edited?.agents ?? []
    const index = names.indexOf(name)
    return index < 0 ? null : index
  }

  worker(name) {
    return this.run?.pool.workers.find((worker) => worker.name === name) ?? null
  }
}

// Returns the estimated tokens of the plan that the Conductor is writing, with all that it writes before it.
export const planTokens = ({ status, raw, reasoning }) =>
  status === "planning" ? estimateTokens(raw) + estimateTokens(reasoning ?? "") : 0

// Returns the worker that was asked last: the step's own, or its fallback.
const asked = (step) => step.attempts.findLast(({ then }) => then === "fallback")?.then_agent ?? step.agent

// Returns the price of a worker or of the Conductor in USD per million tokens; null if unknown. Local models are free.
export function priceOf({ usd_per_mtok, kind, provider }) {
  return (
    usd_per_mtok ?? ((kind ?? provider) === "local" || (kind ?? provider) === "gguf" ? { input: 0, output: 0 } : null)
  )
}

const within = (path, opener) => path.length > opener.length && opener.every((number, at) => path[at] === number)

function emptyStep(path) {
  const usage = { input_tokens: 0, output_tokens: 0, estimated: false }
  const empty = { messages: [], granted: [], withheld: [], attempts: [], because: [], output: "", reasoning: "" }
  return { path, ...empty, usage, started_ms: null, duration_ms: null, cost_usd: 0, reused_from: null, error: null }
}
