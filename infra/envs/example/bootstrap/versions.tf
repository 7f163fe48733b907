terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.0"
    }
  }

  # Its own state stays in this folder: the bucket for state is one of the things it makes. Losing it costs three imports (infra/runbooks/second-operator.md).
  backend "local" {}
}

provider "google" {
  project = var.project
  region  = var.region
  # Calls count against this project, whatever project the machine's own login (`gcloud auth application-default login`) names, or none.
  user_project_override = true
  billing_project       = var.project
}
