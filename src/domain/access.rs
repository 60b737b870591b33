//! Who may do what. [`permits`] is the one authorization table; every route names the
//! [`Action`] that it is, so what isn't here can't be reached.

use std::collections::BTreeSet;

use super::canonical::Hash;
use super::ids::BrokerId;
use super::words::words;

words! {
    /// What a caller is. Broker roles and agents belong to one broker, the others to none.
    Role {
        BrokerAdmin = "broker_admin",
        BrokerOperator = "broker_operator",
        BrokerViewer = "broker_viewer",
        PlatformAdmin = "platform_admin",
        Arbiter = "arbiter",
        /// Software acting under a limit that its broker delegated to it.
        Agent = "agent",
    }
}

impl Role {
    /// Whether whoever has it acts for one broker.
    #[must_use]
    pub const fn is_of_broker(self) -> bool {
        match self {
            Self::BrokerAdmin | Self::BrokerOperator | Self::BrokerViewer | Self::Agent => true,
            Self::PlatformAdmin | Self::Arbiter => false,
        }
    }

    /// Whether it may do everything that another may: nobody hands on a role that does not.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        Action::ALL
            .iter()
            .all(|action| permits(self, *action) || !permits(other, *action))
    }

    /// With its article, as in a sentence.
    const fn one(self) -> &'static str {
        match self {
            Self::BrokerAdmin => "a broker_admin",
            Self::BrokerOperator => "a broker_operator",
            Self::BrokerViewer => "a broker_viewer",
            Self::PlatformAdmin => "a platform_admin",
            Self::Arbiter => "an arbiter",
            Self::Agent => "an agent",
        }
    }
}

/// Longest login, in bytes.
pub const LOGIN_MAX: usize = 120;

/// A login as it is stored and looked up: 3 to [`LOGIN_MAX`] of a-z, 0-9 and . _ @ + -, upper case
/// taken as lower. `None` for what can't be one. A database may take texts for equal that differ,
/// by spaces at their end for instance, so nothing else is ever looked up.
#[must_use]
pub fn login(text: &str) -> Option<String> {
    let login = text.to_ascii_lowercase();
    let fits = (3..=LOGIN_MAX).contains(&login.len());
    let plain = login
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte));
    (fits && plain).then_some(login)
}

words! {
    /// A share of what a role may do, so that a token can carry less than its owner has.
    Scope {
        NetworkRead = "network:read",
        NetworkWrite = "network:write",
        BookRead = "book:read",
        BookWrite = "book:write",
        PaymentsRead = "payments:read",
        PaymentsWrite = "payments:write",
        TeamRead = "team:read",
        TeamWrite = "team:write",
        PlatformRead = "platform:read",
        PlatformWrite = "platform:write",
        ArbiterRead = "arbiter:read",
        ArbiterWrite = "arbiter:write",
    }
}

/// For whom an action is done, known from the caller's token and never from the request.
pub trait Seat: Sized + Send + 'static {
    const KIND: SeatKind;

    /// `None` where the principal can't sit here.
    fn of(principal: &Principal) -> Option<Self>;
}

/// [`Seat`] as a value, for checks over the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatKind {
    Broker,
    Platform,
    Team,
}

/// For one broker: whatever is done is confined to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerSeat {
    pub broker_id: BrokerId,
}

/// For the network itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatformSeat;

/// For a team: a broker's, or the platform's own where there is no broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamSeat {
    pub broker_id: Option<BrokerId>,
}

impl Seat for BrokerSeat {
    const KIND: SeatKind = SeatKind::Broker;

    fn of(principal: &Principal) -> Option<Self> {
        principal.broker_id().map(|broker_id| Self { broker_id })
    }
}

impl Seat for PlatformSeat {
    const KIND: SeatKind = SeatKind::Platform;

    fn of(principal: &Principal) -> Option<Self> {
        principal.broker_id().is_none().then_some(Self)
    }
}

impl Seat for TeamSeat {
    const KIND: SeatKind = SeatKind::Team;

    fn of(principal: &Principal) -> Option<Self> {
        Some(Self {
            broker_id: principal.broker_id(),
        })
    }
}

/// An [`Action`] as a type, so that a handler's signature says which one it is.
pub trait Permission: Send + Sync + 'static {
    const ACTION: Action;
    type Seat: Seat;
}

/// One line per thing that a route does: its name, for whom it is done, the scope it needs.
macro_rules! actions {
    ($($variant:ident = $text:literal, $seat:ident, $scope:ident;)+) => {
        words! {
            /// One thing that a route does.
            Action { $($variant = $text),+ }
        }

        impl Action {
            /// The scope that a token must carry besides its role.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope),+ }
            }

            /// For whom it is done.
            #[must_use]
            pub const fn seat(self) -> SeatKind {
                match self { $(Self::$variant => <$seat as Seat>::KIND),+ }
            }
        }

        /// The actions as types.
        pub mod actions {
            $(
                #[derive(Clone, Copy, Debug)]
                pub struct $variant;

                impl super::Permission for $variant {
                    const ACTION: super::Action = super::Action::$variant;
                    type Seat = super::$seat;
                }
            )+
        }
    };
}

actions! {
    RequestCreate = "request.create", BrokerSeat, NetworkWrite;
    RequestRead = "request.read", BrokerSeat, NetworkRead;
    RequestList = "request.list", BrokerSeat, NetworkRead;
    RequestAccept = "request.accept", BrokerSeat, NetworkWrite;
    RequestReject = "request.reject", BrokerSeat, NetworkWrite;
    RequestCancel = "request.cancel", BrokerSeat, NetworkWrite;
    RequestSent = "request.sent", BrokerSeat, NetworkWrite;
    RequestConfirm = "request.confirm", BrokerSeat, NetworkWrite;
    RequestDispute = "request.dispute", BrokerSeat, NetworkWrite;
    RequestEvents = "request.events", BrokerSeat, NetworkRead;
    RequestBundle = "request.bundle", BrokerSeat, NetworkRead;
    OrderCreate = "order.create", BrokerSeat, NetworkWrite;
    OrderRead = "order.read", BrokerSeat, NetworkRead;
    OrderList = "order.list", BrokerSeat, NetworkRead;
    OrderAccept = "order.accept", BrokerSeat, NetworkWrite;
    OrderReject = "order.reject", BrokerSeat, NetworkWrite;
    OrderCancel = "order.cancel", BrokerSeat, NetworkWrite;
    OrderExecute = "order.execute", BrokerSeat, NetworkWrite;
    OrderConfirm = "order.confirm", BrokerSeat, NetworkWrite;
    OrderDispute = "order.dispute", BrokerSeat, NetworkWrite;
    OrderPickup = "order.pickup", BrokerSeat, NetworkWrite;
    OrderEvents = "order.events", BrokerSeat, NetworkRead;
    DisputeList = "dispute.list", BrokerSeat, NetworkRead;
    DisputeAct = "dispute.act", BrokerSeat, NetworkWrite;
    ArbiterDisputeList = "arbiter.dispute.list", PlatformSeat, ArbiterRead;
    ArbiterDisputeRead = "arbiter.dispute.read", PlatformSeat, ArbiterRead;
    ArbiterDisputeHear = "arbiter.dispute.hear", PlatformSeat, ArbiterWrite;
    CityRead = "city.read", BrokerSeat, NetworkRead;
    CityManage = "city.manage", BrokerSeat, NetworkWrite;
    CreditLineList = "credit_line.list", BrokerSeat, NetworkRead;
    CreditLineSet = "credit_line.set", BrokerSeat, NetworkWrite;
    UploadCreate = "upload.create", BrokerSeat, NetworkWrite;
    UploadRead = "upload.read", BrokerSeat, NetworkRead;
    ObligationList = "obligation.list", BrokerSeat, NetworkRead;
    ObligationRead = "obligation.read", BrokerSeat, NetworkRead;
    PositionRead = "position.read", BrokerSeat, NetworkRead;
    NettingList = "netting.list", BrokerSeat, NetworkRead;
    NettingRead = "netting.read", BrokerSeat, NetworkRead;
    NettingPreview = "netting.preview", BrokerSeat, NetworkRead;
    NettingPropose = "netting.propose", BrokerSeat, NetworkWrite;
    NettingDecide = "netting.decide", BrokerSeat, NetworkWrite;
    NettingSet = "netting.set", BrokerSeat, NetworkWrite;
    BrokerRead = "broker.read", BrokerSeat, BookRead;
    BrokerPlan = "broker.plan", BrokerSeat, TeamWrite;
    WitnessSet = "witness.set", BrokerSeat, TeamWrite;
    DomainRead = "domain.read", BrokerSeat, TeamRead;
    DomainManage = "domain.manage", BrokerSeat, TeamWrite;
    AccountList = "account.list", BrokerSeat, BookRead;
    AccountRead = "account.read", BrokerSeat, BookRead;
    AccountOpen = "account.open", BrokerSeat, BookWrite;
    AccountClose = "account.close", BrokerSeat, BookWrite;
    AccountEntry = "account.entry", BrokerSeat, BookWrite;
    AccountStatement = "account.statement", BrokerSeat, BookRead;
    SwapList = "swap.list", BrokerSeat, BookRead;
    SwapRead = "swap.read", BrokerSeat, BookRead;
    SwapCreate = "swap.create", BrokerSeat, BookWrite;
    PartnerList = "partner.list", BrokerSeat, BookRead;
    PartnerRead = "partner.read", BrokerSeat, BookRead;
    PartnerCreate = "partner.create", BrokerSeat, BookWrite;
    PartnerChange = "partner.change", BrokerSeat, BookWrite;
    TransactionList = "transaction.list", BrokerSeat, BookRead;
    ChainRead = "chain.read", BrokerSeat, BookRead;
    WalletList = "wallet.list", BrokerSeat, PaymentsRead;
    WalletOpen = "wallet.open", BrokerSeat, PaymentsWrite;
    IntentList = "intent.list", BrokerSeat, PaymentsRead;
    IntentRead = "intent.read", BrokerSeat, PaymentsRead;
    IntentCreate = "intent.create", BrokerSeat, PaymentsWrite;
    AdminWalletFund = "admin.wallet.fund", PlatformSeat, PlatformWrite;
    AdminReviewList = "admin.review.list", PlatformSeat, PlatformRead;
    AdminReviewRead = "admin.review.read", PlatformSeat, PlatformRead;
    AdminReviewResolve = "admin.review.resolve", PlatformSeat, PlatformWrite;
    AdminPaymentRetry = "admin.payment.retry", PlatformSeat, PlatformWrite;
    AdminIncomingList = "admin.incoming.list", PlatformSeat, PlatformRead;
    AdminIncomingAssign = "admin.incoming.assign", PlatformSeat, PlatformWrite;
    TeamRead = "team.read", TeamSeat, TeamRead;
    TeamManage = "team.manage", TeamSeat, TeamWrite;
    InviteList = "invite.list", BrokerSeat, TeamRead;
    InviteManage = "invite.manage", BrokerSeat, TeamWrite;
    AdminBrokerCreate = "admin.broker.create", PlatformSeat, PlatformWrite;
    AdminBrokerList = "admin.broker.list", PlatformSeat, PlatformRead;
    AdminBrokerRead = "admin.broker.read", PlatformSeat, PlatformRead;
    AdminBrokerSuspend = "admin.broker.suspend", PlatformSeat, PlatformWrite;
    AdminBrokerResume = "admin.broker.resume", PlatformSeat, PlatformWrite;
    AdminBrokerExit = "admin.broker.exit", PlatformSeat, PlatformRead;
    AdminBrokerOffboard = "admin.broker.offboard", PlatformSeat, PlatformWrite;
    AdminPauseList = "admin.pause.list", PlatformSeat, PlatformRead;
    AdminPauseCreate = "admin.pause.create", PlatformSeat, PlatformWrite;
    AdminPauseLift = "admin.pause.lift", PlatformSeat, PlatformWrite;
    AdminNettingList = "admin.netting.list", PlatformSeat, PlatformRead;
    AdminNettingRead = "admin.netting.read", PlatformSeat, PlatformRead;
    AdminNettingPropose = "admin.netting.propose", PlatformSeat, PlatformWrite;
    AdminNettingCancel = "admin.netting.cancel", PlatformSeat, PlatformWrite;
    AdminBrokerMove = "admin.broker.move", PlatformSeat, PlatformWrite;
    AdminMoveList = "admin.move.list", PlatformSeat, PlatformRead;
    AdminMoveRead = "admin.move.read", PlatformSeat, PlatformRead;
    AdminMoveChange = "admin.move.change", PlatformSeat, PlatformWrite;
    AdminBrokerPlan = "admin.broker.plan", PlatformSeat, PlatformWrite;
    AdminWitnessRead = "admin.witness.read", PlatformSeat, PlatformRead;
    AdminWitnessWrite = "admin.witness.write", PlatformSeat, PlatformWrite;
    AdminArbiterTieRead = "admin.arbiter_tie.read", PlatformSeat, PlatformRead;
    AdminArbiterTieWrite = "admin.arbiter_tie.write", PlatformSeat, PlatformWrite;
    AdminLogBegin = "admin.log.begin", PlatformSeat, PlatformWrite;
    AdminDomainList = "admin.domain.list", PlatformSeat, PlatformRead;
    AdminDomainManage = "admin.domain.manage", PlatformSeat, PlatformWrite;
    AdminInviteList = "admin.invite.list", PlatformSeat, PlatformRead;
    AdminInviteManage = "admin.invite.manage", PlatformSeat, PlatformWrite;
    AdminServerList = "admin.server.list", PlatformSeat, PlatformRead;
    AdminServerAdd = "admin.server.add", PlatformSeat, PlatformWrite;
    AdminShardList = "admin.shard.list", PlatformSeat, PlatformRead;
    AdminShardCreate = "admin.shard.create", PlatformSeat, PlatformWrite;
    AdminShardRemove = "admin.shard.remove", PlatformSeat, PlatformWrite;
    SagaList = "saga.list", PlatformSeat, PlatformRead;
    SagaRead = "saga.read", PlatformSeat, PlatformRead;
    SagaRetry = "saga.retry", PlatformSeat, PlatformWrite;
    SagaCompensate = "saga.compensate", PlatformSeat, PlatformWrite;
    AlertList = "alert.list", PlatformSeat, PlatformRead;
    AlertResolve = "alert.resolve", PlatformSeat, PlatformWrite;
    Reconcile = "reconcile", PlatformSeat, PlatformRead;
}

impl Action {
    /// Whether a token alone doesn't do: who manages a team or the network is looked up in the
    /// master each time, so that whoever was disabled hands nothing on while a token lives.
    #[must_use]
    pub const fn asks_standing(self) -> bool {
        matches!(self.scope(), Scope::TeamWrite | Scope::PlatformWrite)
    }
}

const Y: bool = true;
const N: bool = false;

/// A row of the table, in the order of [`Role`]: a new role doesn't compile until every row
/// says what it may do.
type Row = [bool; Role::ALL.len()];

/// The authorization table.
///
/// An operator does the network's daily work and opens accounts; what makes money out of
/// nothing (opening balances, corrections), what decides for the broker without asking (netting
/// approved by itself) and who is on the team is the admin's. An agent only
/// reads: it may commit money where its limit is checked, and no action here does that.
/// The platform never acts in a broker's place, and sees no book.
#[expect(
    clippy::match_same_arms,
    clippy::too_many_lines,
    reason = "a table: one row per action"
)]
#[rustfmt::skip]
const fn row(action: Action) -> Row {
    match action {
        //                           broker: admin oper view | platform arbiter agent
        Action::RequestCreate              => [Y, Y, N,          N, N, N],
        Action::RequestRead                => [Y, Y, Y,          N, N, Y],
        Action::RequestList                => [Y, Y, Y,          N, N, Y],
        Action::RequestAccept              => [Y, Y, N,          N, N, N],
        Action::RequestReject              => [Y, Y, N,          N, N, N],
        Action::RequestCancel              => [Y, Y, N,          N, N, N],
        Action::RequestSent                => [Y, Y, N,          N, N, N],
        Action::RequestConfirm             => [Y, Y, N,          N, N, N],
        Action::RequestDispute             => [Y, Y, N,          N, N, N],
        Action::RequestEvents              => [Y, Y, Y,          N, N, Y],
        Action::RequestBundle              => [Y, Y, Y,          N, N, Y],
        Action::OrderCreate                => [Y, Y, N,          N, N, N],
        Action::OrderRead                  => [Y, Y, Y,          N, N, Y],
        Action::OrderList                  => [Y, Y, Y,          N, N, Y],
        Action::OrderAccept                => [Y, Y, N,          N, N, N],
        Action::OrderReject                => [Y, Y, N,          N, N, N],
        Action::OrderCancel                => [Y, Y, N,          N, N, N],
        Action::OrderExecute               => [Y, Y, N,          N, N, N],
        Action::OrderConfirm               => [Y, Y, N,          N, N, N],
        Action::OrderDispute               => [Y, Y, N,          N, N, N],
        Action::OrderPickup                => [Y, Y, N,          N, N, N],
        Action::OrderEvents                => [Y, Y, Y,          N, N, Y],
        Action::DisputeList                => [Y, Y, Y,          N, N, N],
        Action::DisputeAct                 => [Y, Y, N,          N, N, N],
        Action::ArbiterDisputeList         => [N, N, N,          N, Y, N],
        Action::ArbiterDisputeRead         => [N, N, N,          N, Y, N],
        Action::ArbiterDisputeHear         => [N, N, N,          N, Y, N],
        Action::CityRead                   => [Y, Y, Y,          N, N, N],
        Action::CityManage                 => [Y, N, N,          N, N, N],
        Action::CreditLineList             => [Y, Y, Y,          N, N, N],
        Action::CreditLineSet              => [Y, N, N,          N, N, N],
        Action::UploadCreate               => [Y, Y, N,          N, N, N],
        Action::UploadRead                 => [Y, Y, Y,          N, N, Y],
        Action::ObligationList             => [Y, Y, Y,          N, N, N],
        Action::ObligationRead             => [Y, Y, Y,          N, N, N],
        Action::PositionRead               => [Y, Y, Y,          N, N, N],
        Action::NettingList                => [Y, Y, Y,          N, N, N],
        Action::NettingRead                => [Y, Y, Y,          N, N, N],
        Action::NettingPreview             => [Y, Y, Y,          N, N, N],
        Action::NettingPropose             => [Y, Y, N,          N, N, N],
        Action::NettingDecide              => [Y, Y, N,          N, N, N],
        Action::NettingSet                 => [Y, N, N,          N, N, N],
        Action::BrokerRead                 => [Y, Y, Y,          N, N, Y],
        Action::BrokerPlan                 => [Y, N, N,          N, N, N],
        Action::WitnessSet                 => [Y, N, N,          N, N, N],
        Action::DomainRead                 => [Y, N, N,          N, N, N],
        Action::DomainManage               => [Y, N, N,          N, N, N],
        Action::AccountList                => [Y, Y, Y,          N, N, N],
        Action::AccountRead                => [Y, Y, Y,          N, N, N],
        Action::AccountOpen                => [Y, Y, N,          N, N, N],
        Action::AccountClose               => [Y, Y, N,          N, N, N],
        Action::AccountEntry               => [Y, N, N,          N, N, N],
        Action::AccountStatement           => [Y, Y, Y,          N, N, N],
        Action::SwapList                   => [Y, Y, Y,          N, N, N],
        Action::SwapRead                   => [Y, Y, Y,          N, N, N],
        Action::SwapCreate                 => [Y, Y, N,          N, N, N],
        Action::PartnerList                => [Y, Y, Y,          N, N, N],
        Action::PartnerRead                => [Y, Y, Y,          N, N, N],
        Action::PartnerCreate              => [Y, Y, N,          N, N, N],
        Action::PartnerChange              => [Y, Y, N,          N, N, N],
        Action::TransactionList            => [Y, Y, Y,          N, N, N],
        Action::ChainRead                  => [Y, Y, Y,          N, N, N],
        Action::WalletList                 => [Y, Y, Y,          N, N, N],
        Action::WalletOpen                 => [Y, N, N,          N, N, N],
        Action::IntentList                 => [Y, Y, Y,          N, N, N],
        Action::IntentRead                 => [Y, Y, Y,          N, N, N],
        Action::IntentCreate               => [Y, Y, N,          N, N, N],
        Action::AdminWalletFund            => [N, N, N,          Y, N, N],
        Action::AdminReviewList            => [N, N, N,          Y, N, N],
        Action::AdminReviewRead            => [N, N, N,          Y, N, N],
        Action::AdminReviewResolve         => [N, N, N,          Y, N, N],
        Action::AdminPaymentRetry          => [N, N, N,          Y, N, N],
        Action::AdminIncomingList          => [N, N, N,          Y, N, N],
        Action::AdminIncomingAssign        => [N, N, N,          Y, N, N],
        Action::TeamRead                   => [Y, N, N,          Y, N, N],
        Action::TeamManage                 => [Y, N, N,          Y, N, N],
        Action::InviteList                 => [Y, N, N,          N, N, N],
        Action::InviteManage               => [Y, N, N,          N, N, N],
        Action::AdminBrokerCreate          => [N, N, N,          Y, N, N],
        Action::AdminBrokerList            => [N, N, N,          Y, N, N],
        Action::AdminBrokerRead            => [N, N, N,          Y, N, N],
        Action::AdminBrokerSuspend         => [N, N, N,          Y, N, N],
        Action::AdminBrokerResume          => [N, N, N,          Y, N, N],
        Action::AdminBrokerExit            => [N, N, N,          Y, N, N],
        Action::AdminBrokerOffboard        => [N, N, N,          Y, N, N],
        Action::AdminPauseList             => [N, N, N,          Y, N, N],
        Action::AdminPauseCreate           => [N, N, N,          Y, N, N],
        Action::AdminPauseLift             => [N, N, N,          Y, N, N],
        Action::AdminNettingList           => [N, N, N,          Y, N, N],
        Action::AdminNettingRead           => [N, N, N,          Y, N, N],
        Action::AdminNettingPropose        => [N, N, N,          Y, N, N],
        Action::AdminNettingCancel         => [N, N, N,          Y, N, N],
        Action::AdminBrokerMove            => [N, N, N,          Y, N, N],
        Action::AdminMoveList              => [N, N, N,          Y, N, N],
        Action::AdminMoveRead              => [N, N, N,          Y, N, N],
        Action::AdminMoveChange            => [N, N, N,          Y, N, N],
        Action::AdminBrokerPlan            => [N, N, N,          Y, N, N],
        Action::AdminWitnessRead           => [N, N, N,          Y, N, N],
        Action::AdminWitnessWrite          => [N, N, N,          Y, N, N],
        Action::AdminArbiterTieRead        => [N, N, N,          Y, N, N],
        Action::AdminArbiterTieWrite       => [N, N, N,          Y, N, N],
        Action::AdminLogBegin              => [N, N, N,          Y, N, N],
        Action::AdminDomainList            => [N, N, N,          Y, N, N],
        Action::AdminDomainManage          => [N, N, N,          Y, N, N],
        Action::AdminInviteList            => [N, N, N,          Y, N, N],
        Action::AdminInviteManage          => [N, N, N,          Y, N, N],
        Action::AdminServerList            => [N, N, N,          Y, N, N],
        Action::AdminServerAdd             => [N, N, N,          Y, N, N],
        Action::AdminShardList             => [N, N, N,          Y, N, N],
        Action::AdminShardCreate           => [N, N, N,          Y, N, N],
        Action::AdminShardRemove           => [N, N, N,          Y, N, N],
        Action::SagaList                   => [N, N, N,          Y, N, N],
        Action::SagaRead                   => [N, N, N,          Y, N, N],
        Action::SagaRetry                  => [N, N, N,          Y, N, N],
        Action::SagaCompensate             => [N, N, N,          Y, N, N],
        Action::AlertList                  => [N, N, N,          Y, N, N],
        Action::AlertResolve               => [N, N, N,          Y, N, N],
        Action::Reconcile                  => [N, N, N,          Y, N, N],
    }
}

/// Whether a role may do an action, whatever else is asked of the token.
#[must_use]
pub const fn permits(role: Role, action: Action) -> bool {
    row(action)[role as usize]
}

// Checked when compiling: nobody is let in to a seat that their role can't take.
const _: () = {
    let mut a = 0;
    while a < Action::ALL.len() {
        let action = Action::ALL[a];
        let mut r = 0;
        while r < Role::ALL.len() {
            let role = Role::ALL[r];
            if permits(role, action) {
                match action.seat() {
                    SeatKind::Broker => assert!(role.is_of_broker(), "a broker's action"),
                    SeatKind::Platform => assert!(!role.is_of_broker(), "the platform's action"),
                    SeatKind::Team => {}
                }
            }
            r += 1;
        }
        a += 1;
    }
};

/// The scopes that a role can have at all: those of the actions it is permitted.
#[must_use]
pub fn scopes_of(role: Role) -> BTreeSet<Scope> {
    Action::ALL
        .iter()
        .filter(|action| permits(role, **action))
        .map(|action| action.scope())
        .collect()
}

/// Who is calling: what a verified token says. Only consistent ones can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    sub: String,
    role: Role,
    broker_id: Option<BrokerId>,
    scopes: BTreeSet<Scope>,
    limit_digest: Option<Hash>,
}

/// What can't be a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    #[error("a subject has 1 to {max} printable ASCII characters", max = Principal::SUB_MAX)]
    Subject,
    #[error("{} belongs to a broker", .0.one())]
    BrokerMissing(Role),
    #[error("{} belongs to no broker", .0.one())]
    BrokerUnexpected(Role),
    #[error("an agent acts under a limit, and nobody else does")]
    Limit,
}

/// Why a principal can't give somebody a role with some scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Beyond {
    #[error("the role {own} can't hand on the role {asked}, which may do more")]
    Role { own: Role, asked: Role },
    #[error("the token lacks the scope {0}, so it can't hand it on")]
    Scope(Scope),
}

/// Why a principal may not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the role {role} may not do {action}")]
    Role { role: Role, action: Action },
    #[error("the token lacks the scope {0}")]
    Scope(Scope),
}

impl Principal {
    /// Longest subject, in bytes: what the columns that name an actor hold.
    pub const SUB_MAX: usize = 80;

    /// # Errors
    /// A subject that can't be stored, a role without its broker or with one it can't have, an
    /// agent without a limit or a limit without an agent.
    pub fn new(
        sub: String,
        role: Role,
        broker_id: Option<BrokerId>,
        scopes: BTreeSet<Scope>,
        limit_digest: Option<Hash>,
    ) -> Result<Self, PrincipalError> {
        let printable = sub.bytes().all(|byte| byte.is_ascii_graphic());
        if sub.is_empty() || sub.len() > Self::SUB_MAX || !printable {
            return Err(PrincipalError::Subject);
        }
        check_role(role, broker_id, limit_digest)?;
        Ok(Self {
            sub,
            role,
            broker_id,
            scopes,
            limit_digest,
        })
    }

    /// The user or client, `US-…` or `CL-…`; `ext:…` where an outside issuer vouches for it.
    #[must_use]
    pub fn sub(&self) -> &str {
        &self.sub
    }

    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    #[must_use]
    pub const fn broker_id(&self) -> Option<BrokerId> {
        self.broker_id
    }

    #[must_use]
    pub const fn scopes(&self) -> &BTreeSet<Scope> {
        &self.scopes
    }

    /// The limit that an agent acts under.
    #[must_use]
    pub const fn limit_digest(&self) -> Option<Hash> {
        self.limit_digest
    }

    /// Whether it may give a role with scopes to somebody: no more than it has itself.
    ///
    /// # Errors
    /// See [`Beyond`].
    pub fn hand_on(&self, asked: Role, scopes: &BTreeSet<Scope>) -> Result<(), Beyond> {
        if !self.role.covers(asked) {
            let own = self.role;
            return Err(Beyond::Role { own, asked });
        }
        match scopes.difference(&self.scopes).next() {
            Some(beyond) => Err(Beyond::Scope(*beyond)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// The table doesn't give the action to the role, or the token lacks its scope.
    pub fn authorize(&self, action: Action) -> Result<(), Refusal> {
        if !permits(self.role, action) {
            return Err(Refusal::Role {
                role: self.role,
                action,
            });
        }
        if !self.scopes.contains(&action.scope()) {
            return Err(Refusal::Scope(action.scope()));
        }
        Ok(())
    }
}

/// Whether a role goes with a broker and a limit: the rule for users, clients and tokens alike.
///
/// # Errors
/// As [`Principal::new`].
pub const fn check_role(
    role: Role,
    broker_id: Option<BrokerId>,
    limit_digest: Option<Hash>,
) -> Result<(), PrincipalError> {
    match (role.is_of_broker(), broker_id) {
        (true, None) => return Err(PrincipalError::BrokerMissing(role)),
        (false, Some(_)) => return Err(PrincipalError::BrokerUnexpected(role)),
        (true, Some(_)) | (false, None) => {}
    }
    if matches!(role, Role::Agent) == limit_digest.is_some() {
        Ok(())
    } else {
        Err(PrincipalError::Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(role: Role, scopes: BTreeSet<Scope>) -> Principal {
        let broker_id = role.is_of_broker().then_some(1);
        let limit = (role == Role::Agent).then(|| Hash::of_bytes(b"limit"));
        Principal::new("US-000000000001".into(), role, broker_id, scopes, limit).unwrap()
    }

    #[test]
    fn names_are_read_back_and_unique() {
        let mut seen = BTreeSet::new();
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(*action));
            assert!(seen.insert(action.as_str()));
        }
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(*role));
        }
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(*scope));
        }
        assert_eq!(Role::parse("root"), None);
    }

    #[test]
    fn every_action_has_somebody_and_a_viewer_changes_nothing() {
        for action in Action::ALL {
            assert!(
                Role::ALL.iter().any(|role| permits(*role, *action)),
                "{action}"
            );
        }
        for role in [Role::BrokerViewer, Role::Agent] {
            for scope in scopes_of(role) {
                assert!(scope.as_str().ends_with(":read"), "{role} has {scope}");
            }
        }
    }

    #[test]
    fn a_token_can_carry_less_than_its_role() {
        let narrow = principal(Role::BrokerAdmin, BTreeSet::from([Scope::NetworkRead]));
        assert_eq!(narrow.authorize(Action::RequestList), Ok(()));
        assert_eq!(
            narrow.authorize(Action::RequestCreate),
            Err(Refusal::Scope(Scope::NetworkWrite))
        );
        // Scopes never add to a role.
        let wide = principal(Role::BrokerViewer, Scope::ALL.iter().copied().collect());
        assert!(matches!(
            wide.authorize(Action::RequestCreate),
            Err(Refusal::Role { .. })
        ));
    }

    #[test]
    fn nobody_hands_on_more_than_they_have() {
        let all = principal(Role::BrokerAdmin, scopes_of(Role::BrokerAdmin));
        for role in [
            Role::BrokerAdmin,
            Role::BrokerOperator,
            Role::BrokerViewer,
            Role::Agent,
        ] {
            assert_eq!(all.hand_on(role, &scopes_of(role)), Ok(()), "{role}");
        }
        let narrow = principal(Role::BrokerAdmin, BTreeSet::from([Scope::TeamWrite]));
        let refused = narrow.hand_on(Role::BrokerViewer, &scopes_of(Role::BrokerViewer));
        assert_eq!(refused, Err(Beyond::Scope(Scope::NetworkRead)));
        let own = BTreeSet::from([Scope::TeamWrite]);
        assert_eq!(narrow.hand_on(Role::BrokerAdmin, &own), Ok(()));
        // An operator has the scope book:write, and may do less with it.
        let operator = principal(Role::BrokerOperator, Scope::ALL.iter().copied().collect());
        assert!(matches!(
            operator.hand_on(Role::BrokerAdmin, &own),
            Err(Beyond::Role { .. })
        ));
    }

    #[test]
    fn logins_have_one_form() {
        assert_eq!(login("Anna@Alpha").as_deref(), Some("anna@alpha"));
        let long = "x".repeat(LOGIN_MAX + 1);
        for text in [
            "",
            "ab",
            "anna ",
            " anna",
            "an na",
            "anna\t",
            "ann\u{e9}",
            &long,
        ] {
            assert_eq!(login(text), None, "{text:?}");
        }
    }

    #[test]
    fn inconsistent_principals_cannot_be_made() {
        let make = |sub: &str, role, broker, limit| {
            Principal::new(sub.to_owned(), role, broker, BTreeSet::new(), limit).err()
        };
        let limit = Some(Hash::of_bytes(b"limit"));
        assert_eq!(
            make("x", Role::BrokerAdmin, None, None),
            Some(PrincipalError::BrokerMissing(Role::BrokerAdmin))
        );
        assert_eq!(
            make("x", Role::Arbiter, Some(1), None),
            Some(PrincipalError::BrokerUnexpected(Role::Arbiter))
        );
        assert_eq!(
            make("x", Role::Agent, Some(1), None),
            Some(PrincipalError::Limit)
        );
        assert_eq!(
            make("x", Role::BrokerAdmin, Some(1), limit),
            Some(PrincipalError::Limit)
        );
        let of_none = PrincipalError::BrokerUnexpected(Role::Arbiter).to_string();
        assert_eq!(of_none, "an arbiter belongs to no broker");
        for sub in ["", "a b", "a\n", "é", &"x".repeat(81)] {
            assert_eq!(
                make(sub, Role::BrokerViewer, Some(1), None),
                Some(PrincipalError::Subject)
            );
        }
    }
}
