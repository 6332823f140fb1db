// An application server: pushes as the library web-push of npm makes them.
//
//     node npm_sender.cjs FILE    sends the pushes that the file lists and prints what the library returns or throws

"use strict";

const { readFileSync } = require("node:fs");
const webpush = require("web-push");

const TIMEOUT_MS = 10_000;

async function push({ subscription, payload, options }) {
  try {
    return await webpush.sendNotification(subscription, payload, { timeout: TIMEOUT_MS, ...options });
  } catch (error) {
    const { name, message, statusCode, headers, body } = error;
    return { name, message, statusCode, headers, body };
  }
}

async function pushAll(path) {
  const answers = [];
  for (const order of JSON.parse(readFileSync(path, "utf8"))) {
    answers.push(await push(order));
  }
  console.log(JSON.stringify(answers));
}

pushAll(process.argv[2]);
