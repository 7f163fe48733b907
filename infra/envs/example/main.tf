# One installation of Rekindle in one project. Before it: bootstrap/, then publish.sh.

data "google_project" "this" {
  project_id = var.project
}

locals {
  # What may stand in the variables without a type, which check it.
  fields = {
    entry  = ["accelerator", "zone", "kind", "max_chips", "usd_per_chip_hour"]
    limits = ["max_chips", "max_usd_per_day"]
    rule   = ["who", "whose", "may"]
    borrow = ["service_accounts", "secrets", "capacity"]
    part   = ["accelerator", "zone", "kind"]
  }
  # Families of the catalogue: a test compares.
  families = ["v2", "v3", "v4", "v5litepod", "v5p", "v6e"]

  # Above the ports of TPU runtimes; the workers listen there on their own addresses.
  bell_port = 8478
  bucket    = "${var.project}-rekindle"
  regions   = toset([for c in local.capacity : regex("^(.+)-[a-z0-9]+$", c.zone)[0]])

  # What the services read: nothing that they do not know, and null for what is not said.
  capacity = [for c in var.capacity : {
    accelerator       = c.accelerator
    zone              = c.zone
    kind              = c.kind
    max_chips         = tonumber(lookup(c, "max_chips", null))
    usd_per_chip_hour = tonumber(c.usd_per_chip_hour)
  }]
  owner_limits = { for owner, limits in var.owner_limits : owner => {
    max_chips       = tonumber(lookup(limits, "max_chips", null))
    max_usd_per_day = tonumber(lookup(limits, "max_usd_per_day", null))
  } }
  policy = {
    rules = [for r in lookup(var.policy, "rules", null)[*] : { who = r.who, whose = r.whose, may = r.may }]
    borrow = { for owner, b in merge(lookup(var.policy, "borrow", null)) : owner => {
      service_accounts = lookup(b, "service_accounts", null)[*]
      secrets          = lookup(b, "secrets", null)[*]
      # Absent: all of it; empty: nothing.
      capacity = lookup(b, "capacity", null) == null ? null : [for part in lookup(b, "capacity", null)[*] : {
        accelerator = lookup(part, "accelerator", null)
        zone        = lookup(part, "zone", null)
        kind        = lookup(part, "kind", null)
      }]
    } }
  }

  # The policy lends accounts and secrets to owners. A job reads its secrets as the account that it runs as, so this account must be able to
  # read what is lent to whoever may name it; a prefix may be of a secret's name, or of one of its versions.
  lent_secrets = { for account in var.worker_accounts : account => [for secret in var.worker_secrets : secret if anytrue([
    for lent in values(local.policy.borrow) : (contains(lent.service_accounts, account) || contains(lent.service_accounts, "*")) && anytrue([
      for prefix in lent.secrets : startswith("projects/${var.project}/secrets/${secret}/versions/", prefix) || startswith(prefix, "projects/${var.project}/secrets/${secret}/versions/")
    ])
  ])] }

  # gcloud's own client: the audience of a person's `gcloud auth print-identity-token`, which cannot be told another.
  gcloud_client = "32555940559.apps.googleusercontent.com"
}

module "network" {
  source = "../../modules/network"

  project = var.project
  regions = local.regions
  nat     = var.nat

  services_region = var.region
  bell_port       = local.bell_port
}

module "store" {
  source = "../../modules/store"

  project      = var.project
  location     = var.region
  database     = var.database
  indexes_file = "${path.module}/../../firestore.indexes.json"
}

module "identity" {
  source = "../../modules/identity"

  project                   = var.project
  project_number            = data.google_project.this.number
  region                    = var.region
  database                  = module.store.database
  bucket                    = local.bucket
  services                  = module.service.names
  topics                    = module.trigger.topics
  dead_letter_subscriptions = module.trigger.dead_letter_subscriptions
  queue                     = module.trigger.queue
  sink_writer               = module.trigger.sink_writer
  people                    = var.people
  publishers                = var.publishers
  worker_accounts           = var.worker_accounts
  worker_prefixes           = var.worker_prefixes
  worker_secrets            = var.worker_secrets
  lent_secrets              = local.lent_secrets
}

module "service" {
  source = "../../modules/service"

  project        = var.project
  project_number = data.google_project.this.number
  region         = var.region
  image          = var.image
  emails         = module.identity.emails
  bells          = { network = module.network.network, subnetwork = module.network.services_subnetwork }
  ready          = module.identity.documents_ready

  environment = {
    GOOGLE_CLOUD_PROJECT            = var.project
    REKINDLE_DATABASE               = module.store.database
    REKINDLE_BUCKET                 = "gs://${local.bucket}"
    REKINDLE_BUCKET_REGIONS         = join(",", [for l in var.bucket_locations : lower(l)])
    REKINDLE_CAPACITY               = jsonencode(local.capacity)
    REKINDLE_MAX_CHIPS              = tostring(var.max_chips)
    REKINDLE_MAX_USD_PER_DAY        = tostring(var.max_usd_per_day)
    REKINDLE_WORKER_SERVICE_ACCOUNT = module.identity.emails["worker"]
    REKINDLE_WORKER_NETWORK         = module.network.network
    REKINDLE_WORKER_SUBNETWORK      = module.network.network
    REKINDLE_BELL_PORT              = tostring(local.bell_port)
    REKINDLE_AGENT_URL              = "gs://${local.bucket}/agents/${var.agent_sha256}"
    REKINDLE_AGENT_SHA256           = var.agent_sha256
    REKINDLE_PEOPLE                 = join(",", var.people)
    REKINDLE_PEOPLE_AUDIENCES       = local.gcloud_client
    REKINDLE_ADMINS                 = join(",", var.admins)
    REKINDLE_OWNER_LIMITS           = jsonencode(local.owner_limits)
    REKINDLE_POLICY                 = jsonencode(local.policy)
    REKINDLE_TASKS_LOCATION         = var.region
    REKINDLE_TASKS_QUEUE            = "rekindle-wakeups"
    REKINDLE_TASKS_SERVICE_ACCOUNT  = module.identity.emails["tasks"]
    OTEL_EXPORTER_OTLP_ENDPOINT     = var.otlp_endpoint
  }
}

module "trigger" {
  source = "../../modules/trigger"

  project        = var.project
  region         = var.region
  urls           = module.service.urls
  services       = module.service.names
  emails         = module.identity.emails
  eventarc_ready = module.identity.eventarc_ready
}

module "observability" {
  source = "../../modules/observability"

  project         = var.project
  project_number  = data.google_project.this.number
  emails          = var.admins
  alerts          = var.alerts
  tick_absence    = var.tick_absence
  billing_account = var.budget ? data.google_project.this.billing_account : null
  max_usd_per_day = var.max_usd_per_day
}
