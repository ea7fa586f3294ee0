// A task is looked at while it is typed: where only simulated workers are chosen, the page asks who should answer one
// that they do not know. Streamlit draws the page anew only when that question comes or goes.

const PAUSE_MS = 350
let pause = null
let newest = 0

document.addEventListener("input", ({ target }) => {
  if (!target.matches?.(".st-key-task textarea")) return
  clearTimeout(pause)
  pause = setTimeout(look, PAUSE_MS, target)
})

async function look(field) {
  if (document.querySelector(".st-key-asks-while-typing") === null) return
  const task = field.value
  const number = ++newest
  const asks = task.trim() !== "" && !(await isKnown(task))
  if (number !== newest || field.value !== task) return
  // Streamlit takes what was typed when the field loses the focus. It keeps it; the event alone says so.
  const asked = document.querySelector(".st-key-who-answers") !== null
  if (asks !== asked) field.dispatchEvent(new FocusEvent("focusout", { bubbles: true }))
}

async function isKnown(task) {
  try {
    const said = { method: "POST", body: JSON.stringify({ task }) }
    const answer = await fetch(new URL("api/known-task", new URL(".", location.href)), said)
    return !answer.ok || (await answer.json()).known
  } catch {
    return true // the server is gone: the page itself says so
  }
}
