//! Puts the parts together as the configuration says: what every process of the product runs on.

mod payments;

use std::sync::Arc;

use sqlx::mysql::MySqlConnectOptions;

use crate::config::{Config, Seconds};
use crate::domain::request::DisputeRules;
use crate::psp::client::EndpointError;
use crate::runtime::{Clock, Entropy};
use crate::services::alerts::AlertService;
use crate::services::arbiters::ArbiterService;
use crate::services::audit::{AuditRules, AuditService};
use crate::services::auth::password::{HashError, Passwords};
use crate::services::book_files::BookFiles;
use crate::services::books::BooksService;
use crate::services::bundles::BundleService;
use crate::services::checkpoints::{CheckpointRules, CheckpointService};
use crate::services::credit_lines::CreditLineService;
use crate::services::domains::DomainService;
use crate::services::feeds::FeedService;
use crate::services::invites::InviteService;
use crate::services::moves::{MoveEngine, MoveLimits, MoveService};
use crate::services::netting::{NettingRules, NettingService};
use crate::services::network::{NetworkRules, NetworkService};
use crate::services::obligations::ObligationService;
use crate::services::offboarding::Offboarding;
use crate::services::partners::PartnerService;
use crate::services::pauses::PauseService;
use crate::services::payments::{PaymentParts, PaymentService};
use crate::services::plans::PlanService;
use crate::services::provisioning::Provisioning;
use crate::services::reconcile::Reconcile;
use crate::services::saga::{SagaEngine, SagaLimits, SagaRecords, Systems};
use crate::services::signup::SignupService;
use crate::services::uploads::UploadService;
use crate::stores::StoreError;
use crate::stores::ledger::{Ledger, LedgerConfig, LedgerError};
use crate::stores::master::currencies::CurrencyRegistry;
use crate::stores::pool::{Pool, PoolBounds};
use crate::stores::router::{PoolLimits, Router, ServerUrl};

/// The services of one process.
#[derive(Clone)]
pub struct App {
    pub systems: Systems,
    pub currencies: Arc<CurrencyRegistry>,
    pub engine: SagaEngine,
    pub sagas: SagaRecords,
    pub network: NetworkService,
    pub obligations: ObligationService,
    pub netting: NettingService,
    pub credit_lines: CreditLineService,
    pub payments: PaymentService,
    pub uploads: UploadService,
    pub books: BooksService,
    pub feeds: FeedService,
    pub alerts: AlertService,
    pub provisioning: Provisioning,
    pub pauses: PauseService,
    pub offboarding: Offboarding,
    pub moves: MoveService,
    pub move_engine: MoveEngine,
    pub partners: Arc<PartnerService>,
    pub plans: Arc<PlanService>,
    pub domains: Arc<DomainService>,
    pub invites: Arc<InviteService>,
    pub signup: Arc<SignupService>,
    pub reconcile: Reconcile,
    pub arbiters: ArbiterService,
    pub checkpoints: Arc<CheckpointService>,
    pub bundles: Arc<BundleService>,
    pub audit: Arc<AuditService>,
}

/// The databases of one process: enough for work that moves no money.
#[derive(Clone)]
pub struct Stores {
    pub master: Pool,
    pub router: Arc<Router>,
}

impl Stores {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// An address that can't be read.
    pub fn open(config: &Config) -> Result<Self, StoreError> {
        let master = master_pool(config)?;
        let servers = config.servers.iter().map(|(name, server)| ServerUrl {
            name: name.clone(),
            url: server.url.expose().to_owned(),
            max_connections: server.max_connections,
        });
        let limits = PoolLimits {
            max_pools: config.pools.max_pools,
            bounds: PoolBounds {
                max_connections: config.pools.per_pool_connections as usize,
                ..pool_bounds(config)
            },
        };
        let router = Router::new(master.clone(), servers.collect(), limits)
            .waiting(config.books.move_wait_ms.duration());
        let router = Arc::new(router);
        Ok(Self { master, router })
    }

    /// What makes places for books, as the configuration says.
    #[must_use]
    pub fn provisioning(&self, config: &Config) -> Provisioning {
        let prefix = &config.books.database_prefix;
        Provisioning::new(self.master.clone(), Arc::clone(&self.router), prefix)
    }

    /// What writes books into files and takes them in.
    #[must_use]
    pub fn book_files(&self) -> BookFiles {
        BookFiles::new(self.master.clone(), Arc::clone(&self.router))
    }

    /// What pauses and resumes.
    #[must_use]
    pub fn pauses(&self) -> PauseService {
        let currencies = Arc::new(CurrencyRegistry::new(self.master.clone()));
        PauseService::new(self.master.clone(), currencies)
    }

    /// What nets debts.
    #[must_use]
    pub fn netting(&self, config: &Config, clock: Clock, entropy: Entropy) -> NettingService {
        let currencies = Arc::new(CurrencyRegistry::new(self.master.clone()));
        let rules = NettingRules {
            min_brokers: config.netting.min_brokers,
            proposal_expiry: config.netting.proposal_expiry_s.duration(),
            round_expiry: config.netting.round_expiry_s.duration(),
            wait: config.http.confirm_wait_ms.duration(),
        };
        NettingService::new(self.master.clone(), currencies, clock, entropy, rules)
    }

    /// What begins and changes moves of books.
    #[must_use]
    pub fn moves(&self, config: &Config, clock: Clock, entropy: Entropy) -> MoveService {
        let places = self.provisioning(config);
        let retention_s = u32::try_from(config.moves.retention_s.0).unwrap_or(u32::MAX);
        MoveService::new(self.master.clone(), places, clock, entropy, retention_s)
    }

    /// What keeps the log of chain heads.
    ///
    /// # Errors
    /// An address that can't be read.
    pub fn checkpoints(
        &self,
        config: &Config,
        clock: Clock,
    ) -> Result<CheckpointService, StoreError> {
        let pm = payments::pool(config)?;
        let (master, router) = (self.master.clone(), Arc::clone(&self.router));
        let rules = checkpoint_rules(config);
        Ok(CheckpointService::new(master, router, pm, clock, rules))
    }

    /// What verifies books again.
    #[must_use]
    pub fn audit(
        &self,
        config: &Config,
        checkpoints: CheckpointService,
        clock: Clock,
    ) -> AuditService {
        let books = BooksService::new(Arc::clone(&self.router));
        let rules = AuditRules {
            round: config.audit.round_s.duration(),
        };
        AuditService::new(self.master.clone(), books, checkpoints, clock, rules)
    }

    /// What changes brokers' plans.
    #[must_use]
    pub fn plans(&self) -> PlanService {
        let books = BooksService::new(Arc::clone(&self.router));
        PlanService::new(self.master.clone(), books)
    }
}

/// What shows that nothing was rewritten.
struct Evidence {
    checkpoints: CheckpointService,
    bundles: BundleService,
    audit: AuditService,
}

impl Evidence {
    fn of(stores: &Stores, systems: &Systems, config: &Config) -> Self {
        let checkpoints = CheckpointService::new(
            systems.master.clone(),
            Arc::clone(&systems.router),
            systems.pm.clone(),
            systems.clock.clone(),
            checkpoint_rules(config),
        );
        let bundles = BundleService::new(
            systems.master.clone(),
            Arc::clone(&systems.router),
            systems.ledger.clone(),
            checkpoints.clone(),
            systems.clock.clone(),
        );
        Self {
            audit: stores.audit(config, checkpoints.clone(), systems.clock.clone()),
            checkpoints,
            bundles,
        }
    }
}

/// Why the parts can't be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Provider(#[from] EndpointError),
    #[error(transparent)]
    Codes(#[from] HashError),
}

impl App {
    /// Connects to nothing yet: what is away is found when it is first needed, and `/readyz`
    /// names it.
    ///
    /// # Errors
    /// An address that can't be read.
    pub fn assemble(config: &Config, clock: Clock, entropy: Entropy) -> Result<Self, AppError> {
        let ledger = Ledger::connect(&ledger_config(config))?;
        Self::on_ledger(config, ledger, clock, entropy)
    }

    /// As [`Self::assemble`], on a ledger client that the process has already: it may have few.
    ///
    /// # Errors
    /// An address that can't be read.
    pub fn on_ledger(
        config: &Config,
        ledger: Ledger,
        clock: Clock,
        entropy: Entropy,
    ) -> Result<Self, AppError> {
        let stores = Stores::open(config)?;
        let master = stores.master.clone();
        let systems = Systems {
            router: Arc::clone(&stores.router),
            master: master.clone(),
            pm: payments::pool(config)?,
            ledger,
            clock,
            entropy,
        };
        let started = systems.clock.now();
        let process = format!(
            "{}-{}",
            std::process::id(),
            systems.entropy.uuid(started).simple()
        );
        let engine = SagaEngine::new(systems.clone(), saga_limits(config), process.clone());
        let move_engine = MoveEngine::new(
            master.clone(),
            Arc::clone(&stores.router),
            stores.provisioning(config),
            systems.clock.clone(),
            move_limits(config),
            process.clone(),
        );
        let moves = stores.moves(config, systems.clock.clone(), systems.entropy.clone());
        let netting = stores.netting(config, systems.clock.clone(), systems.entropy.clone());
        let currencies = Arc::new(CurrencyRegistry::new(master));
        let rules = network_rules(config);
        let auth = &config.auth;
        let codes = Passwords::new(auth.parallel_hashes, auth.hash_wait_ms.duration())?;
        let evidence = Evidence::of(&stores, &systems, config);
        let network = NetworkService::new(
            systems.clone(),
            Arc::clone(&currencies),
            engine.clone(),
            evidence.checkpoints.clone(),
            codes,
            rules,
        );
        let provisioning = stores.provisioning(config);
        let signup = SignupService::new(
            systems.master.clone(),
            provisioning.clone(),
            config.network.signup,
        );
        let plans = stores.plans();
        let books = BooksService::new(Arc::clone(&systems.router));
        let partners = PartnerService::new(systems.master.clone(), books.clone(), plans.clone());
        let payments = PaymentService::new(PaymentParts {
            pm: systems.pm.clone(),
            master: systems.master.clone(),
            ledger: systems.ledger.clone(),
            currencies: Arc::clone(&currencies),
            books: books.clone(),
            providers: payments::providers(config)?,
            rules: payments::rules(config),
            clock: systems.clock.clone(),
            entropy: systems.entropy.clone(),
            process: process.clone(),
        });
        let offboarding = Offboarding::new(
            systems.master.clone(),
            Arc::clone(&systems.router),
            payments.clone(),
        );
        let uploads = UploadService::new(systems.master.clone(), systems.clock.clone());
        Ok(Self {
            audit: Arc::new(evidence.audit),
            bundles: Arc::new(evidence.bundles),
            arbiters: ArbiterService::new(systems.master.clone(), systems.clock.clone()),
            checkpoints: Arc::new(evidence.checkpoints),
            payments,
            sagas: SagaRecords::new(systems.master.clone()),
            obligations: ObligationService::new(systems.master.clone(), systems.ledger.clone()),
            netting,
            credit_lines: CreditLineService::new(systems.master.clone(), systems.clock.clone()),
            books,
            partners: Arc::new(partners),
            plans: Arc::new(plans),
            domains: Arc::new(DomainService::new(
                systems.master.clone(),
                systems.clock.clone(),
            )),
            invites: Arc::new(InviteService::new(systems.master.clone())),
            signup: Arc::new(signup),
            feeds: FeedService::new(systems.master.clone()),
            alerts: AlertService::new(systems.master.clone(), systems.clock.clone()),
            provisioning,
            offboarding,
            pauses: PauseService::new(systems.master.clone(), Arc::clone(&currencies)),
            moves,
            move_engine,
            reconcile: Reconcile::new(systems.clone(), Arc::clone(&currencies)),
            systems,
            currencies,
            engine,
            network,
            uploads,
        })
    }
}

/// The ledger's part of the configuration.
#[must_use]
pub fn ledger_config(config: &Config) -> LedgerConfig {
    let tigerbeetle = &config.tigerbeetle;
    LedgerConfig {
        timeout: tigerbeetle.timeout_ms.duration(),
        ..LedgerConfig::new(tigerbeetle.cluster_id.0, tigerbeetle.addresses.clone())
    }
}

fn master_pool(config: &Config) -> Result<Pool, StoreError> {
    let options: MySqlConnectOptions = config
        .master
        .url
        .expose()
        .parse()
        .map_err(|error| StoreError::from_sqlx("master", error))?;
    let bounds = PoolBounds {
        max_connections: config.master.max_connections as usize,
        ..pool_bounds(config)
    };
    Ok(Pool::new(options, bounds))
}

fn pool_bounds(config: &Config) -> PoolBounds {
    PoolBounds {
        acquire_timeout: config.pools.acquire_timeout_ms.duration(),
        statement_timeout: config.pools.statement_timeout_ms.duration(),
        idle_timeout: config.pools.idle_timeout_ms.duration(),
        ..PoolBounds::default()
    }
}

fn network_rules(config: &Config) -> NetworkRules {
    NetworkRules {
        confirm_within: config.network.confirm_by_s.duration(),
        wait: config.http.confirm_wait_ms.duration(),
        default_terms: config.network.terms,
        disputes: dispute_rules(config),
    }
}

fn checkpoint_rules(config: &Config) -> CheckpointRules {
    let checkpoints = &config.checkpoints;
    CheckpointRules {
        name: checkpoints.name.clone(),
        signing_keys: checkpoints.signing_key_file.clone(),
        interval: checkpoints.interval_s.duration(),
        batch: checkpoints.batch,
        readers: checkpoints.readers as usize,
        audit_growth: config.audit.growth_s.duration(),
    }
}

fn dispute_rules(config: &Config) -> DisputeRules {
    let network = &config.network;
    let span = |seconds: Seconds| {
        chrono::Duration::from_std(seconds.duration()).unwrap_or(chrono::Duration::MAX)
    };
    DisputeRules {
        window: span(network.dispute_window_s),
        respond_within: span(network.dispute_answer_s),
        appeal_within: span(network.appeal_window_s),
    }
}

fn move_limits(config: &Config) -> MoveLimits {
    let moves = &config.moves;
    MoveLimits {
        lease: moves.lease_ms.duration(),
        fence_lease: moves.fence_lease_ms.duration(),
        tail_bound: moves.tail_bound_ms.duration(),
        batch_rows: moves.batch_rows,
        tail_rows: moves.tail_rows,
        yield_percent: moves.yield_percent,
        max_tries: moves.max_tries,
        ..MoveLimits::default()
    }
}

fn saga_limits(config: &Config) -> SagaLimits {
    let saga = &config.saga;
    SagaLimits {
        lease: saga.lease_ms.duration(),
        max_retries: saga.max_retries,
        backoff_base: saga.backoff_base_ms.duration(),
        backoff_max: saga.backoff_max_ms.duration(),
        append_group: saga.append_batch,
        finish_group: saga.finish_batch,
    }
}
