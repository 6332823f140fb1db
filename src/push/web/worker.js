// Shows a push, and reports it to the pages that are open.

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("push", (event) => {
  const text = event.data ? event.data.text() : "";
  const report = async () => {
    const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
    const tell = (message) => pages.forEach((page) => page.postMessage(message));
    tell({ kind: "received", text });
    try {
      await self.registration.showNotification("Kalends", { body: text, tag: "kalends-trial" });
      tell({ kind: "shown", text });
    } catch {
      tell({ kind: "hidden", text });
    }
  };
  event.waitUntil(report());
});

self.addEventListener("notificationclick", (event) => event.notification.close());
