// The page is its own application server: it subscribes with the VAPID key of the server, encrypts a message (RFC 8291),
// and posts it to the endpoint that the browser got, with the token that the server has signed.

const SCOPE = "/web/";
const WAIT_MS = 30000;
const STATE_MS = 5000;

const byId = (id) => document.getElementById(id);
const ascii = (text) => new TextEncoder().encode(text);

function joined(...parts) {
  const bytes = parts.flatMap((part) => [...new Uint8Array(part)]);
  return new Uint8Array(bytes);
}

async function hkdf(secret, salt, info, bytes) {
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  return crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info }, key, bytes * 8);
}

/** The body of a push in aes128gcm. */
async function encrypted(subscription, text) {
  const curve = { name: "ECDH", namedCurve: "P-256" };
  const theirs = subscription.getKey("p256dh");
  const pair = await crypto.subtle.generateKey(curve, true, ["deriveBits"]);
  const ours = await crypto.subtle.exportKey("raw", pair.publicKey);
  const peer = await crypto.subtle.importKey("raw", theirs, curve, false, []);
  const shared = await crypto.subtle.deriveBits({ name: "ECDH", public: peer }, pair.privateKey, 256);
  const info = joined(ascii("WebPush: info\0"), theirs, ours);
  const secret = await hkdf(shared, subscription.getKey("auth"), info, 32);
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const key = await hkdf(secret, salt, ascii("Content-Encoding: aes128gcm\0"), 16);
  const iv = await hkdf(secret, salt, ascii("Content-Encoding: nonce\0"), 12);
  const aes = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, aes, joined(ascii(text), [2]));
  return joined(salt, [0, 0, 16, 0], [ours.byteLength], ours, sealed);
}

function hop(text, began) {
  const item = document.createElement("li");
  const time = document.createElement("span");
  time.className = "time";
  time.textContent = `${Math.round(performance.now() - began)} ms`;
  item.append(text, " ", time);
  byId("hops").append(item);
}

function result(text, kind) {
  byId("result").textContent = text;
  byId("result").className = kind;
}

/** Resolves when the service worker has shown the message. */
function shown(text, began) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      reject(new Error("the message was accepted, and this browser has not received it in 30 s: is it still connected?"));
    }, WAIT_MS);
    const listen = (event) => {
      const { kind } = event.data;
      if (event.data.text !== text) return;
      hop({ received: "Sent by the server to this browser", shown: "Shown", hidden: "Not shown: this browser has no notifications" }[kind], began);
      if (kind === "received") return;
      clearTimeout(late);
      navigator.serviceWorker.removeEventListener("message", listen);
      resolve();
    };
    navigator.serviceWorker.addEventListener("message", listen);
    navigator.serviceWorker.startMessages();
  });
}

async function subscribed(publicKey) {
  if (!window.isSecureContext) {
    throw new Error("browsers allow push over https only, and at localhost: open this page there");
  }
  if (!("serviceWorker" in navigator && "PushManager" in window)) {
    throw new Error("this browser has no push, or it is a private window");
  }
  if ((await Notification.requestPermission()) !== "granted") {
    throw new Error("the browser does not allow notifications for this page: allow them and try again");
  }
  const registration = await navigator.serviceWorker.register("/web/worker.js", { scope: SCOPE });
  await active(registration);
  const before = await registration.pushManager.getSubscription();
  if (before) await before.unsubscribe();
  return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
}

/** A worker whose scope has no page is never ready by itself. */
function active(registration) {
  const worker = registration.installing || registration.waiting;
  if (registration.active || !worker) return registration;
  return new Promise((resolve) => {
    worker.addEventListener("statechange", () => worker.state === "activated" && resolve(registration));
  });
}

async function trial({ origin, key, token }) {
  const before = performance.now();
  const subscription = await subscribed(key);
  try {
    const server = new URL(subscription.endpoint).origin;
    if (server !== origin) {
      throw new Error(`the push server of this browser is ${server}: set it to this one, as described under “Use this server”, and restart the browser`);
    }
    hop("Subscribed", before);
    const text = `Hello from ${location.host}, ${new Date().toLocaleTimeString()}`;
    const headers = {
      TTL: "60",
      Urgency: "high",
      "Content-Encoding": "aes128gcm",
      Authorization: `vapid t=${token}, k=${key}`,
    };
    const body = await encrypted(subscription, text);
    const began = performance.now();
    const arrival = shown(text, began);
    const accepted = fetch(subscription.endpoint, { method: "POST", headers, body }).then(async (answer) => {
      if (answer.status !== 201) throw new Error(`the server answered ${answer.status}: ${(await answer.json()).message}`);
      hop("Acked by this browser, and accepted by the server", began);
    });
    await Promise.all([accepted, arrival]);
  } finally {
    await subscription.unsubscribe();
  }
}

byId("start").addEventListener("click", async ({ target }) => {
  byId("hops").replaceChildren();
  result("", "");
  target.disabled = true;
  try {
    await trial(target.dataset);
    result("It works: this browser receives push messages through this server.", "good");
  } catch (error) {
    result(`It does not work yet: ${error.message}.`, "bad");
  }
  target.disabled = false;
});
byId("start").hidden = false;

/** Reads the page again, and shows the state that it has: the key and the token of a server that restarted are others. */
async function readState() {
  let [state, kind] = ["This server does not answer. This page tries again until it does.", "down"];
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(STATE_MS) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    [state, kind] = [page.getElementById("state").textContent, page.getElementById("state").className];
    Object.assign(byId("start").dataset, page.getElementById("start").dataset);
  } catch {
    // A proxy answers for a server that is gone with a page of its own.
  }
  if (byId("state").textContent !== state) byId("state").textContent = state;
  byId("state").className = kind;
}

setInterval(() => document.hidden || readState(), STATE_MS);
document.addEventListener("visibilitychange", () => document.hidden || readState());

for (const button of document.querySelectorAll("[data-copy]")) {
  const value = byId(button.dataset.copy).textContent;
  const show = (word) => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word} ${value}`);
  };
  button.hidden = !navigator.clipboard;
  show("Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(value);
    show("Copied");
    setTimeout(show, 2000, "Copy");
  });
}
