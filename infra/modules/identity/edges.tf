# Who may do what: every edge, and nothing else. infra/iam-edges.csv says why, and a test compares the two.

locals {
  member = { for name, a in google_service_account.account : name => "serviceAccount:${a.email}" }

  # Google's own agent of Pub/Sub forwards dead letters.
  pubsub_agent = "serviceAccount:service-${var.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  people     = { for email in var.people : email => "${endswith(email, ".gserviceaccount.com") ? "serviceAccount" : "user"}:${email}" }
  publishers = { for email in var.publishers : email => "${endswith(email, ".gserviceaccount.com") ? "serviceAccount" : "user"}:${email}" }

  # The folders of jobs that a worker account may touch: of those whose ids begin so, all by default.
  of_worker = { for name in keys(local.workers) : name => join(" || ", [
    "resource.name.startsWith('${local.object_root}/jobs/${lookup(var.worker_prefixes, name, "")}')",
    "${local.prefix_attr}.startsWith('jobs/${lookup(var.worker_prefixes, name, "")}')",
  ]) }

  # By names that are known before anything is made.
  workers = merge(
    { worker = local.member["worker"] },
    { for email in var.worker_accounts : email => "serviceAccount:${email}" },
  )
  worker_ids = merge(
    { worker = google_service_account.account["worker"].name },
    { for email in var.worker_accounts : email => "projects/${var.project}/serviceAccounts/${email}" },
  )

  # The condition that keeps a right to folders of the bucket. A list is a call on the bucket, with the folder as its prefix.
  object_root = "projects/_/buckets/${var.bucket}/objects"
  prefix_attr = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
  within = { for folder in ["jobs", "bundles", "agents"] : folder => join(" || ", [
    "resource.name.startsWith('${local.object_root}/${folder}/')",
    "${local.prefix_attr}.startsWith('${folder}/')",
  ]) }
}

# Documents: all three services, in this database only.
resource "google_project_iam_member" "documents" {
  for_each = toset(["api", "events", "reconcile"])

  project = var.project
  role    = google_project_iam_custom_role.documents.name
  member  = local.member[each.value]

  condition {
    title      = "rekindle-database"
    expression = "resource.name == 'projects/${var.project}/databases/${var.database}'"
  }
}

# TPUs: `reconcile` alone. The API has no rights below the project.
resource "google_project_iam_member" "tpu" {
  project = var.project
  role    = google_project_iam_custom_role.tpu.name
  member  = local.member["reconcile"]
}

# A node is made with its account, which takes the right to act as it.
resource "google_service_account_iam_member" "reconcile_acts_as_worker" {
  for_each = local.worker_ids

  service_account_id = each.value
  role               = "roles/iam.serviceAccountUser"
  member             = local.member["reconcile"]
}

# A task is made with the account whose token it will carry.
resource "google_service_account_iam_member" "reconcile_acts_as_tasks" {
  service_account_id = google_service_account.account["tasks"].name
  role               = "roles/iam.serviceAccountUser"
  member             = local.member["reconcile"]
}

resource "google_cloud_tasks_queue_iam_member" "reconcile" {
  project  = var.project
  location = var.region
  name     = var.queue
  role     = "roles/cloudtasks.enqueuer"
  member   = local.member["reconcile"]
}

# Who publishes what.
resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = {
    api-hints             = { account = "api", topic = "hints" }
    events-hints          = { account = "events", topic = "hints" }
    events-dead-letter    = { account = "events", topic = "dead-letter" }
    reconcile-hints       = { account = "reconcile", topic = "hints" }
    reconcile-events      = { account = "reconcile", topic = "events" }
    reconcile-dead-letter = { account = "reconcile", topic = "dead-letter" }
  }

  project = var.project
  topic   = var.topics[each.value.topic]
  role    = "roles/pubsub.publisher"
  member  = local.member[each.value.account]
}

resource "google_pubsub_topic_iam_member" "people" {
  for_each = local.publishers

  project = var.project
  topic   = var.topics["jobs"]
  role    = "roles/pubsub.publisher"
  member  = each.value
}

resource "google_pubsub_topic_iam_member" "sink" {
  project = var.project
  topic   = var.topics["tpu-events"]
  role    = "roles/pubsub.publisher"
  member  = var.sink_writer
}

resource "google_pubsub_topic_iam_member" "agent" {
  project = var.project
  topic   = var.topics["dead-letter"]
  role    = "roles/pubsub.publisher"
  member  = local.pubsub_agent
}

# Forwarding acknowledges the message at its own subscription.
resource "google_pubsub_subscription_iam_member" "agent" {
  for_each = var.dead_letter_subscriptions

  project      = var.project
  subscription = each.value
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

# Who calls which service.
resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = {
    push-events         = { account = "push", service = "events" }
    push-reconcile      = { account = "push", service = "reconcile" }
    eventarc-events     = { account = "eventarc", service = "events" }
    tasks-reconcile     = { account = "tasks", service = "reconcile" }
    scheduler-reconcile = { account = "scheduler", service = "reconcile" }
    reconcile-api       = { account = "reconcile", service = "api" }
  }

  project  = var.project
  location = var.region
  name     = var.services[each.value.service]
  role     = "roles/run.invoker"
  member   = local.member[each.value.account]
}

resource "google_cloud_run_v2_service_iam_member" "people" {
  for_each = local.people

  project  = var.project
  location = var.region
  name     = var.services["api"]
  role     = "roles/run.invoker"
  member   = each.value
}

resource "google_cloud_run_v2_service_iam_member" "worker" {
  for_each = local.workers

  project  = var.project
  location = var.region
  name     = var.services["api"]
  role     = "roles/run.invoker"
  member   = each.value
}

# Eventarc looks whether the account of a trigger may receive events before it makes the trigger.
resource "google_project_iam_member" "eventarc" {
  project = var.project
  role    = "roles/eventarc.eventReceiver"
  member  = local.member["eventarc"]
}

# Objects.
resource "google_storage_bucket_iam_member" "api" {
  for_each = toset(["jobs", "bundles"])

  bucket = var.bucket
  role   = google_project_iam_custom_role.objects.name
  member = local.member["api"]

  condition {
    title      = "rekindle-${each.value}"
    expression = local.within[each.value]
  }
}

# Of a job's objects its outputs alone.
resource "google_storage_bucket_iam_member" "api_outputs" {
  bucket = var.bucket
  role   = google_project_iam_custom_role.replace.name
  member = local.member["api"]

  condition {
    title      = "rekindle-outputs"
    expression = "resource.name.startsWith('${local.object_root}/jobs/') && resource.name.extract('/objects/jobs/{job}/outputs/') != ''"
  }
}

resource "google_storage_bucket_iam_member" "worker_bucket" {
  for_each = local.workers

  bucket = var.bucket
  role   = google_project_iam_custom_role.bucket.name
  member = each.value
}

resource "google_storage_bucket_iam_member" "worker_jobs" {
  for_each = local.workers

  bucket = var.bucket
  role   = google_project_iam_custom_role.checkpoints.name
  member = each.value

  condition {
    title      = "rekindle-jobs"
    expression = local.of_worker[each.key]
  }
}

resource "google_storage_bucket_iam_member" "worker_artefacts" {
  for_each = merge([for folder in ["agents", "bundles"] : { for name, member in local.workers : "${name}-${folder}" => { member = member, folder = folder } }]...)

  bucket = var.bucket
  role   = google_project_iam_custom_role.artefacts.name
  member = each.value.member

  condition {
    title      = "rekindle-${each.value.folder}"
    expression = local.within[each.value.folder]
  }
}

# The usual account reads all that may be borrowed; a further one only what is lent to those whose jobs may run as it.
resource "google_secret_manager_secret_iam_member" "worker" {
  for_each = merge([for name, member in local.workers : {
    for secret in(name == "worker" ? var.worker_secrets : lookup(var.lent_secrets, name, [])) : "${name}-${secret}" => { member = member, secret = secret }
  }]...)

  project   = var.project
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = each.value.member
}
