import { Alert, App, Button, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { receivedInvitationsQuery, useAnswerInvitation } from '../../data/folders/folders';
import { meQuery } from '../../data/accounts/me';

/** The folder invitations that the user has received and not yet answered. */
export function Invitations() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const { data: received = [] } = useQuery({
    ...receivedInvitationsQuery(me?.id ?? ''),
    enabled: me !== undefined
  });
  const answer = useAnswerInvitation();
  const reply = (id: string, accept: boolean) =>
    answer.mutate({ id, accept }, { onError: error => void message.error(error.message) });
  return received.map(({ id, vfolder, inviter, permission }) => (
    <Alert
      key={id}
      type="info"
      showIcon
      style={{ marginBottom: 12 }}
      title={t('invitations.received', {
        folder: vfolder,
        user: inviter,
        permission: t(`permissions.${permission}`)
      })}
      action={
        <Flex gap="small">
          <Button type="primary" size="small" onClick={() => reply(id, true)}>
            {t('invitations.accept')}
          </Button>
          <Button size="small" onClick={() => reply(id, false)}>
            {t('invitations.decline')}
          </Button>
        </Flex>
      }
    />
  ));
}
