// Hands a run or a comparison over: its address, or one file that opens without a server.

import { copyText, el, setText } from "./dom.js"
import { runUrl } from "./socket.js"

const SAID_MS = 1500
const RUN = {
  title: "Share this run",
  address: "The address opens this run for whoever can reach this inspector.",
  holds: "The file holds the whole run, with its replay.",
  wait: "The run goes on. The file can be saved when it is over.",
}

export class Share {
  // `opener`: what has the focus again when the dialog has closed; else a button of its own.
  constructor(words = RUN, opener = null) {
    this.wait = words.wait
    this.opener =
      opener ??
      el("button", { type: "button", class: "share-open", title: words.hint, onclick: () => this.open() }, "Share")
    this.link = el("button", { type: "button", onclick: () => this.copy() }, "Copy link")
    this.words = el("textarea", { rows: "3", dir: "auto", maxlength: "20000", spellcheck: "false" })
    this.save = el("button", { type: "button", class: "primary", onclick: () => this.download() }, "Download")
    this.fault = el("p", { class: "bad", role: "alert" })
    const close = el("button", { type: "button", onclick: () => this.element.close() }, "Close")
    this.element = el(
      "dialog",
      { class: "share", "aria-label": words.title },
      el("h2", {}, words.title),
      el("p", {}, words.address),
      el("div", { class: "share-row" }, this.link),
      el(
        "p",
        {},
        `${words.holds} It opens in a browser without a server and fetches nothing. `,
        "Keys are hidden in it. It is an unsigned copy. ",
        el("code", {}, "conductor import FILE"),
        " reads it into another database.",
      ),
      el("label", {}, "Hide these words in the file, one on each line", this.words),
      this.fault,
      el("div", { class: "share-row" }, this.save, close),
    )
    // Keys in the dialog must not reach the page, which has shortcuts of single letters.
    for (const kind of ["keydown", "keyup", "keypress"])
      this.element.addEventListener(kind, (event) => event.stopPropagation())
    this.element.addEventListener("click", (event) => event.target === this.element && this.element.close())
    this.element.addEventListener("close", () => this.opener.focus({ preventScroll: true }))
  }

  show(run, ended) {
    const runId = run?.run_id
    const url = () => runUrl(runId, "share")
    this.offer({ query: { run: runId }, url, body: {}, file: `run-${runId}.html` }, ended)
  }

  // Takes what is handed over: the query of its address, and what is sent where, for the file of which name.
  offer(what, ended) {
    this.what = what
    this.save.disabled = !ended || this.saving === true
    this.save.title = ended ? "" : this.wait
  }

  open() {
    setText(this.fault, "")
    this.element.showModal()
  }

  async copy() {
    const url = new URL(location.href)
    url.search = new URLSearchParams(this.what.query).toString()
    setText(this.link, (await copyText(url.href, this.link)) ? "Link copied" : "Not copied")
    setTimeout(() => setText(this.link, "Copy link"), SAID_MS)
  }

  async download() {
    const { url: from, body: asked, file } = this.what
    this.saving = this.save.disabled = true
    setText(this.save, "Writing the file…")
    setText(this.fault, "")
    try {
      const body = JSON.stringify({ ...asked, words: this.words.value.split("\n") })
      const headers = { "content-type": "application/json" }
      const response = await fetch(from(), { method: "POST", headers, body })
      if (!response.ok) throw new Error((await response.json()).error)
      const url = URL.createObjectURL(await response.blob())
      el("a", { href: url, download: file }).click()
      setTimeout(() => URL.revokeObjectURL(url), 10_000)
      this.element.close()
    } catch (error) {
      setText(this.fault, `The file could not be written: ${error.message}`)
    } finally {
      this.saving = this.save.disabled = false
      setText(this.save, "Download")
    }
  }
}
