output "topics" {
  description = "Names of the topics: jobs, hints, events, tpu-events, dead-letter."
  value       = { for name, t in google_pubsub_topic.topic : name => t.name }
}

output "dead_letter_subscriptions" {
  description = "Names of the subscriptions that forward to the dead-letter topic, by topic."
  value       = { for name, s in google_pubsub_subscription.push : name => s.name }
}

output "sink_writer" {
  description = "Principal as which the Logging sink publishes."
  value       = google_logging_project_sink.tpu_events.writer_identity
}

output "queue" {
  description = "Name of the queue of wake-ups."
  value       = google_cloud_tasks_queue.wakeups.name
}
