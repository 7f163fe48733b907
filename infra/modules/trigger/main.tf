# What wakes the functions: topics with push subscriptions, the minute tick, the queue of wake-ups. Audit logs are in audit.tf.

locals {
  topics = toset(["jobs", "hints", "events", "tpu-events", "dead-letter"])

  # After so many attempts a message goes to the dead-letter topic; 100 is the most that Pub/Sub allows.
  pushes = {
    # A person's command: given up last.
    jobs = { service = "events", path = "/functions/jobs", attempts = 100 }
    # The tick repairs a lost hint.
    hints = { service = "reconcile", path = "/functions/reconcile", attempts = 10 }
    # Webhooks. Their function gives an event up by its age, after a quarter of an hour at most where no outage comes first: with the
    # back-off below some 20 attempts. The others are for an outage.
    events = { service = "events", path = "/functions/notify", attempts = 100 }
    # The tick finds what a lost event would have told.
    tpu-events = { service = "events", path = "/functions/tpu-events", attempts = 10 }
  }
}

resource "google_pubsub_topic" "topic" {
  # checkov:skip=CKV_GCP_83:Messages hold job ids, job specs (which hold no secret, only names of secrets) and audit entries; Google's own key is enough.
  for_each = local.topics

  project = var.project
  name    = "rekindle-${each.value}"
}

resource "google_pubsub_subscription" "push" {
  for_each = local.pushes

  project = var.project
  name    = "rekindle-${each.key}-push"
  topic   = google_pubsub_topic.topic[each.key].id
  # Above the handlers' own deadline of 25 s, so that no message is delivered twice at once.
  ack_deadline_seconds = 60

  push_config {
    push_endpoint = "${var.urls[each.value.service]}${each.value.path}"
    oidc_token {
      service_account_email = var.emails["push"]
      # Cloud Run takes the root of the service, never the whole address, which would be the default.
      audience = var.urls[each.value.service]
    }
  }

  # Short: of one message only, since Pub/Sub's own push back-off holds all of them after a failure.
  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.topic["dead-letter"].id
    max_delivery_attempts = each.value.attempts
  }

  # Never: a month without a job must not end in silence.
  expiration_policy {
    ttl = ""
  }
}

# A topic without a subscription loses what it gets. Nothing pulls here but a person (runbooks/dead-letters.md).
resource "google_pubsub_subscription" "dead_letter" {
  project                    = var.project
  name                       = "rekindle-dead-letter-pull"
  topic                      = google_pubsub_topic.topic["dead-letter"].id
  ack_deadline_seconds       = 60
  message_retention_duration = "1209600s"

  expiration_policy {
    ttl = ""
  }
}

# Each minute: due jobs, create permits, the orphan sweep. Cloud Scheduler never has two runs open, so a slow tick holds back the next.
resource "google_cloud_scheduler_job" "tick" {
  project          = var.project
  region           = var.region
  name             = "rekindle-tick"
  description      = "Wakes jobs whose time has come, grants creates, sweeps orphans."
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "55s"

  # The next tick does the same.
  retry_config {
    retry_count = 0
  }

  http_target {
    uri         = "${var.urls["reconcile"]}/functions/tick"
    http_method = "POST"
    oidc_token {
      service_account_email = var.emails["scheduler"]
      audience              = var.urls["reconcile"]
    }
  }
}

# Wake-ups at a time. They only make passes earlier: the tick finds each job that is due.
resource "google_cloud_tasks_queue" "wakeups" {
  project  = var.project
  location = var.region
  name     = "rekindle-wakeups"

  rate_limits {
    max_dispatches_per_second = 100
    max_concurrent_dispatches = 100
  }

  # Both must be passed before a task is given up.
  retry_config {
    max_attempts       = 5
    max_retry_duration = "300s"
    min_backoff        = "1s"
    max_backoff        = "30s"
    max_doublings      = 5
  }
}
