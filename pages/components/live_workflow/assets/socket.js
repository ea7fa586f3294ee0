// The live route of one run: connects, passes messages on, and reconnects after a loss. Each connection begins with a
// whole snapshot, and the model drops what it has already seen, so that nothing is doubled or lost.

import { BASE } from "./base.js"

const FIRST_WAIT_MS = 250
const LONGEST_WAIT_MS = 5_000
const CLOSE_UNKNOWN_RUN = 4404
const CLOSE_REFUSED = 4403

export const runUrl = (runId, what) => new URL(`api/runs/${encodeURIComponent(runId)}/${what}`, BASE)

// Brings what is needed to play a run again; see recording.js.
export async function fetchRecording(runId) {
  const response = await fetch(runUrl(runId, "recording"))
  const found = await response.json()
  if (!response.ok) throw new Error(found.error)
  return found
}

export class RunSocket {
  constructor(runId, { onMessage, onState, finished }) {
    this.runId = runId
    this.onMessage = onMessage
    this.onState = onState
    this.finished = finished
    this.attempts = 0
    this.closed = false
    this.open()
  }

  open() {
    const url = runUrl(this.runId, "live")
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:"
    this.onState(this.attempts ? "reconnecting" : "connecting")
    const socket = new WebSocket(url)
    this.socket = socket
    socket.onmessage = (event) => {
      // What a lost connection still delivers may lack what came before it: the next one begins with the whole run.
      if (socket !== this.socket) return
      this.attempts = 0
      this.onState("live")
      this.onMessage(JSON.parse(event.data))
    }
    socket.onclose = (event) => this.lost(event.code)
  }

  lost(code) {
    if (this.closed) return
    this.socket = null
    if (code === CLOSE_UNKNOWN_RUN || code === CLOSE_REFUSED || this.finished()) {
      this.onState(code === CLOSE_REFUSED ? "refused" : "over")
      return
    }
    this.attempts += 1
    this.onState("reconnecting")
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.attempts - 1))
    this.timer = setTimeout(() => this.open(), wait * (0.5 + Math.random() / 2))
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
    this.socket?.close()
  }
}
